"""torchrec's EmbeddingBagCollection, in one process.

Two modules on the same memory: `EmbeddingBagCollection`, an `nn.EmbeddingBag` a table, and
`FusedEmbeddingBagCollection`, its twin whose tables and rules are fbgemm's TBE: what the sharded
collection runs too, without the process group. The forward pass tries both. The twin trains by SGD,
row-wise Adagrad and Adagrad; it has no Adam on the CPU. SGD and Adam are also torch's own, run by
`apply_optimizer_in_backward`: with gradients that were set to be sparse, since the dense ones that
the collection makes by itself would sweep every table.

A batch arrives as torchrec's input dist would hand it over: values, lengths and offsets, and what
`KeyedJaggedTensor.sync()` finds. The tensor around them is new in each step, as it caches.
"""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import torch
from torch.distributed.optim import apply_optimizer_in_backward as hooks
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from adapters import base

FUSED = {
    "sgd": torch.optim.SGD,
    "rowwise_adagrad": RowWiseAdagrad,
    "adagrad": torch.optim.Adagrad,
}
IN_BACKWARD = {"sgd": torch.optim.SGD, "adam": torch.optim.SparseAdam}


class Adapter(base.Adapter):
    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)

    def versions(self) -> dict[str, str]:
        return {
            "torchrec": version("torchrec"),
            "torch": torch.__version__,
            "fbgemm_gpu": version("fbgemm-gpu-cpu"),
        }

    def build(self, tables: int, rows: int, dim: int) -> None:
        self.dim, self.names = dim, [f"f{t}" for t in range(tables)]
        self.configs = [
            EmbeddingBagConfig(
                name=f"t{t}", embedding_dim=dim, num_embeddings=rows, feature_names=[name]
            )
            for t, name in enumerate(self.names)
        ]
        self.loaded: np.ndarray | None = None
        self.hooked: list[torch.nn.Parameter] = []
        self._make("sgd")

    def _make(self, group: str) -> None:
        """The twin's optimizer is part of it, so another rule is another module."""
        from cases import LEARNING_RATE

        self.release()
        self.fused = self.collection = self.weights = None  # old tables go before new ones come
        self.fused = FusedEmbeddingBagCollection(
            self.configs, FUSED[group], {"lr": LEARNING_RATE}, device=torch.device("cpu")
        )
        self.collection = EmbeddingBagCollection(self.configs, device=torch.device("meta"))
        for name, bag in self.collection.embedding_bags.items():
            bag.weight = torch.nn.Parameter(self.fused.embedding_bags[name].weight.detach())
            bag.sparse = True
        self.weights = [bag.weight for bag in self.collection.embedding_bags.values()]
        self.rule = group
        if self.loaded is not None:
            self.load(self.loaded)

    def load(self, values: np.ndarray) -> None:
        self.loaded = values
        with torch.no_grad():
            for weight, value in zip(self.weights, values, strict=True):
                weight.copy_(torch.from_numpy(value))

    def read(self) -> np.ndarray:
        return np.stack([weight.detach().numpy() for weight in self.weights])

    def _batches(self, ids: np.ndarray):
        """A function that gives batch i anew."""
        _, tables, bags, hotness = ids.shape
        flat = [torch.from_numpy(batch.reshape(-1).copy()) for batch in ids]
        lengths = torch.full((tables * bags,), hotness)
        offsets = torch.arange(0, tables * bags * hotness + 1, hotness)
        of_key = bags * hotness
        keys, per_key = self.names, [of_key] * tables
        offset_per_key = list(range(0, tables * of_key + 1, of_key))

        def batch(i: int) -> KeyedJaggedTensor:
            return KeyedJaggedTensor(
                keys=keys,
                values=flat[i],
                lengths=lengths,
                offsets=offsets,
                stride=bags,
                length_per_key=per_key,
                offset_per_key=offset_per_key,
            )

        return batch

    def steps(self, group: str, ids: np.ndarray) -> dict[str, base.Step]:
        rule = group if group in FUSED else "sgd"  # which has no slots
        if group != "forward" and rule != self.rule:
            self._make(rule)
        batch = self._batches(ids)
        if group == "forward":
            return {
                "EmbeddingBagCollection": self._forward(self.collection, batch),
                "FusedEmbeddingBagCollection": self._forward(self.fused, batch),
            }
        ways = {}
        if group in FUSED:
            ways["FusedEmbeddingBagCollection"] = self._training(self.fused, batch, ids)
        if group in IN_BACKWARD:
            ways["EmbeddingBagCollection, sparse gradients, optimizer in backward"] = (
                self._training(self._with_optimizer(IN_BACKWARD[group]), batch, ids)
            )
        return ways

    def _with_optimizer(self, rule: type) -> EmbeddingBagCollection:
        """The collection on parameters of its own, to which the optimizer is hooked."""
        from cases import LEARNING_RATE

        collection = EmbeddingBagCollection(self.configs, device=torch.device("meta"))
        for bag, weight in zip(collection.embedding_bags.values(), self.weights, strict=True):
            bag.weight, bag.sparse = torch.nn.Parameter(weight.detach()), True
        self.hooked = list(collection.parameters())
        apply_optimizer_in_backward(rule, self.hooked, {"lr": LEARNING_RATE})
        return collection

    def _forward(self, module: torch.nn.Module, batch) -> base.Step:
        def step(i: int):
            with torch.no_grad():  # fbgemm's kernel doesn't run in inference mode
                return module(batch(i)).values()

        return step

    def _training(self, module: torch.nn.Module, batch, ids: np.ndarray) -> base.Step:
        from cases import output_gradient

        _, tables, bags, _ = ids.shape
        by_table = output_gradient(tables, bags, self.dim).transpose(1, 0, 2)
        gradient = torch.from_numpy(np.ascontiguousarray(by_table.reshape(bags, -1)))

        def step(i: int) -> None:
            module(batch(i)).values().backward(gradient)

        return step

    def outputs(self, result: object) -> np.ndarray:
        bags = result.shape[0]  # type: ignore[attr-defined]
        return result.numpy().reshape(bags, -1, self.dim).transpose(1, 0, 2)  # type: ignore[attr-defined]

    def release(self) -> None:
        """State of the twin's rule lives as long as the twin.

        Without their hooks, torch's tables of hooks would keep parameters and optimizers for ever.
        """
        for parameter in self.hooked:
            for handle in hooks.param_to_optim_hook_handle_map.pop(parameter):
                handle.remove()
            del hooks.param_to_acc_grad_map[parameter]
            parameter._in_backward_optimizers.clear()
        self.hooked = []
