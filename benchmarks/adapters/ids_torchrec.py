"""torchrec's managed collision: MCH with each of its policies, and HashZch.

A training step is what its training loop does: the module remaps a batch, and counts it towards the
next eviction, which comes every `eviction_interval` steps. HashZch's kernel inserts on GPUs alone:
on the CPU it finds, and what it can't find keeps the place that its hash says.
"""

from __future__ import annotations

import logging
from importlib.metadata import version

import numpy as np
import torch
from torchrec.modules.hash_mc_modules import HashZchManagedCollisionModule
from torchrec.modules.mc_modules import (
    DistanceLFU_EvictionPolicy,
    LFU_EvictionPolicy,
    LRU_EvictionPolicy,
    MCHManagedCollisionModule,
)
from torchrec.sparse.jagged_tensor import JaggedTensor

from adapters import ids_base

INTERVAL = 20  # steps from one eviction to the next
CPU = torch.device("cpu")


def features(ids: np.ndarray) -> dict[str, JaggedTensor]:
    """A batch of one id a sample."""
    count = len(ids)
    return {
        "f": JaggedTensor(
            values=torch.from_numpy(ids),
            lengths=torch.ones(count, dtype=torch.int64),
            weights=torch.tensor([count]),
        )
    }


class _Adapter(ids_base.Adapter):
    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        logging.disable(logging.WARNING)
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)

    def versions(self) -> dict[str, str]:
        return {
            "torchrec": version("torchrec"),
            "torch": torch.__version__,
            "fbgemm_gpu": version("fbgemm-gpu-cpu"),
        }

    def make(self, rows: int) -> torch.nn.Module:
        raise NotImplementedError

    def build(self, tables: int, rows: int, dim: int) -> None:
        self.rows = rows
        self.module = self.make(rows)

    def fill(self, ids: np.ndarray) -> dict:
        self.module.train()
        for batch in ids_base.batches(ids, -(-len(ids) // INTERVAL)):  # then comes an eviction
            self._train(batch)
        state = self.module.state_dict().values()
        return {
            "bytes": sum(value.numel() * value.element_size() for value in state),
            "rows": self.rows,
        }

    def _train(self, ids: np.ndarray):
        with torch.no_grad():
            rows = self.module(features(ids))["f"].values()
            self.module.evict()  # the ids that lost their rows, whose vectors are the caller's
        return rows

    def _find(self, ids: np.ndarray):
        with torch.no_grad():
            return self.module(features(ids))["f"].values()

    def steps(self, group: str, ids: np.ndarray) -> dict:
        flat = [np.array(batch.reshape(-1)) for batch in ids]
        self.module.train(group == "train")
        call = self._train if group == "train" else self._find

        def on(threads: int):
            def step(i: int):
                torch.set_num_threads(threads)
                return call(flat[i])

            return step

        # Small kernels may be quicker without a second thread to wait for.
        return {f"{threads} threads": on(threads) for threads in sorted({1, self.threads})}

    def release(self) -> None:
        """The map stays."""


class _Mch(_Adapter):
    policy: type

    def make(self, rows: int) -> torch.nn.Module:
        return MCHManagedCollisionModule(
            zch_size=rows, device=CPU, eviction_policy=self.policy(), eviction_interval=INTERVAL
        )


class MchLfu(_Mch):
    policy = LFU_EvictionPolicy


class MchLru(_Mch):
    policy = LRU_EvictionPolicy


class MchDistanceLfu(_Mch):
    policy = DistanceLFU_EvictionPolicy


class HashZch(_Adapter):
    """Finds only, in an empty table: what its hash and probes cost."""

    def make(self, rows: int) -> torch.nn.Module:
        module = HashZchManagedCollisionModule(
            zch_size=rows, device=CPU, total_num_buckets=1, max_probe=128
        )
        module.eval()
        return module

    def fill(self, ids: np.ndarray) -> dict:
        state = self.module.state_dict().values()
        return {
            "bytes": sum(value.numel() * value.element_size() for value in state),
            "rows": self.rows,
        }
