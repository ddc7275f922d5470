"""fbgemm's table-batched embedding on the CPU: all tables in one call, the update in backward.

`SplitTableBatchedEmbeddingBagsCodegen` with its fused exact optimizers is what TorchRec runs on a
CPU. Ids of all tables arrive as one tensor with one tensor of offsets, made before the step. The
forward pass runs without gradients (inference mode finds no CPU kernel). No Adam on the CPU.
"""

from __future__ import annotations

import fbgemm_gpu
import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from adapters import base

RULES = {
    "sgd": EmbOptimType.EXACT_SGD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
}


class Adapter(base.Adapter):
    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__, "fbgemm_gpu": fbgemm_gpu.__version__}

    def build(self, tables: int, rows: int, dim: int) -> None:
        self.tables, self.rows, self.dim = tables, rows, dim
        self.loaded: np.ndarray | None = None
        self._make("sgd")

    def _make(self, group: str) -> None:
        """The optimizer is part of the module, so another rule is another module."""
        from cases import LEARNING_RATE

        self.module = None  # the old tables go before the new ones come
        location = (self.rows, self.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)
        self.module = SplitTableBatchedEmbeddingBagsCodegen(
            [location] * self.tables,
            optimizer=RULES[group],
            learning_rate=LEARNING_RATE,
            pooling_mode=PoolingMode.SUM,
            device=torch.device("cpu"),
        )
        self.module.init_embedding_weights_uniform(-0.05, 0.05)
        self.rule = group

    def load(self, values: np.ndarray) -> None:
        self.loaded = values
        self._fill()

    def _fill(self) -> None:
        with torch.no_grad():
            for weight, value in zip(
                self.module.split_embedding_weights(), self.loaded, strict=True
            ):
                weight.copy_(torch.from_numpy(value))

    def read(self) -> np.ndarray:
        weights = self.module.split_embedding_weights()
        return np.stack([weight.detach().numpy() for weight in weights])

    def steps(self, group: str, ids: np.ndarray) -> dict[str, base.Step]:
        from cases import output_gradient

        if group not in ("forward", self.rule):
            self._make(group)
            if self.loaded is not None:
                self._fill()
        _, tables, bags, hotness = ids.shape
        flat = [torch.from_numpy(batch.reshape(-1).copy()) for batch in ids]
        offsets = torch.arange(0, tables * bags * hotness + 1, hotness)
        module = self.module
        if group == "forward":

            def step(i: int):
                with torch.no_grad():
                    return module(flat[i], offsets)

        else:
            by_table = output_gradient(tables, bags, self.dim)
            gradient = torch.from_numpy(
                np.ascontiguousarray(by_table.transpose(1, 0, 2).reshape(bags, -1))
            )

            def step(i: int):
                module(flat[i], offsets).backward(gradient)

        return {"TBE": step}

    def outputs(self, result: object) -> np.ndarray:
        bags = result.shape[0]  # type: ignore[attr-defined]
        return result.numpy().reshape(bags, self.tables, self.dim).transpose(1, 0, 2)  # type: ignore[attr-defined]

    def release(self) -> None:
        """State of the rule lives as long as the module."""
