"""torch.nn.functional.embedding_bag with sparse gradients, and torch's sparse optimizers.

`nn.EmbeddingBag(mode="sum", sparse=True)` is this function and a weight. Flat ids with offsets are
its native input (a [B, L] input makes the offsets anew in each call). Adam is `SparseAdam` (lazy),
Adagrad takes sparse gradients, SGD adds them; torch has no row-wise Adagrad.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from adapters import base


class Adapter(base.Adapter):
    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}

    def build(self, tables: int, rows: int, dim: int) -> None:
        self.dim = dim
        self.weights = [
            torch.nn.Parameter(torch.empty(rows, dim).uniform_(-0.05, 0.05)) for _ in range(tables)
        ]

    def load(self, values: np.ndarray) -> None:
        with torch.no_grad():
            for weight, value in zip(self.weights, values, strict=True):
                weight.copy_(torch.from_numpy(value))

    def read(self) -> np.ndarray:
        return np.stack([weight.detach().numpy() for weight in self.weights])

    def _lookups(self, ids: np.ndarray):
        _, _, bags, hotness = ids.shape
        flat = [[torch.from_numpy(table.reshape(-1).copy()) for table in batch] for batch in ids]
        offsets = torch.arange(0, bags * hotness + 1, hotness)

        def bag(i: int):
            return [
                functional.embedding_bag(
                    x, weight, offsets, mode="sum", sparse=True, include_last_offset=True
                )
                for weight, x in zip(self.weights, flat[i], strict=True)
            ]

        return {"embedding_bag": bag}

    def steps(self, group: str, ids: np.ndarray) -> dict[str, base.Step]:
        from cases import LEARNING_RATE, output_gradient

        lookups = self._lookups(ids)
        if group == "forward":

            def forward(lookup):
                def step(i: int):
                    with torch.inference_mode():
                        return lookup(i)

                return step

            return {name: forward(lookup) for name, lookup in lookups.items()}

        rule = {
            "sgd": torch.optim.SGD,
            "adagrad": torch.optim.Adagrad,
            "adam": torch.optim.SparseAdam,
        }[group]
        optimizer = rule(self.weights, lr=LEARNING_RATE)
        gradient = [torch.from_numpy(g) for g in output_gradient(*ids.shape[1:3], self.dim)]

        def training(lookup):
            def step(i: int) -> None:
                optimizer.zero_grad(set_to_none=True)
                torch.autograd.backward(lookup(i), gradient)
                optimizer.step()

            return step

        return {name: training(lookup) for name, lookup in lookups.items()}

    def outputs(self, result: object) -> np.ndarray:
        return torch.stack(result).numpy()  # type: ignore[arg-type]

    def release(self) -> None:
        for weight in self.weights:
            weight.grad = None
