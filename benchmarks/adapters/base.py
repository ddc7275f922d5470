"""What the worker asks of a peer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Step = Callable[[int], object]


class Adapter:
    """A peer with one set of tables.

    Subclasses define:

    - `versions()`: what is being measured, for the record;
    - `build(tables, rows, dim)`: random float32 tables, every page of them touched;
    - `load(values)`: set the tables to `values` [T, R, D], for the check of the peer's semantics;
    - `read()`: the tables as they are, [T, R, D];
    - `steps(group, ids)`: named ways of calling one step on batch i of ids [N, T, B, L], the
      first being the default. A forward step returns its outputs, one [B, D] a table or one
      [B, T * D]. The worker tries the ways on the same ids and keeps the fastest;
    - `release()`: forget the optimizer's state and the ids of `steps`, keep the tables.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def versions(self) -> dict[str, str]:
        raise NotImplementedError

    def build(self, tables: int, rows: int, dim: int) -> None:
        raise NotImplementedError

    def load(self, values: np.ndarray) -> None:
        raise NotImplementedError

    def read(self) -> np.ndarray:
        raise NotImplementedError

    def steps(self, group: str, ids: np.ndarray) -> dict[str, Step]:
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError

    def outputs(self, result: object) -> np.ndarray:
        """What a forward step returned, as [T, B, D]."""
        return np.stack([np.asarray(output) for output in result])  # type: ignore[attr-defined]
