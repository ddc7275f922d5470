"""Files that hold no table, and say in which checkpoint it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from merlin_embeddings.checkpoint.errors import BrokenCheckpoint
from merlin_embeddings.checkpoint.reader import Checkpoint
from merlin_embeddings.tables import DenseTable, check_some, write_some

_tables: ContextVar[Mapping[int, Reference] | None] = ContextVar("tables", default=None)
_moved: ContextVar[str | None] = ContextVar("moved", default=None)


@dataclass(frozen=True)
class Reference:
    """A table of a checkpoint.

    Attributes:
        path: of the checkpoint when it was written.
        id: the checkpoint's.
        table: its name there.
    """

    path: str
    id: str
    table: str

    def to_array(self) -> np.ndarray:
        """As files of arrays hold it: [N] uint8."""
        return np.frombuffer(json.dumps(asdict(self)).encode(), np.uint8)

    @classmethod
    def from_array(cls, array: Any) -> Reference:
        """What `to_array` made `array` of.

        Raises:
            ValueError: it is something else.
        """
        try:
            data = json.loads(np.asarray(array, np.uint8).tobytes())
            return cls(*(str(data[name]) for name in ("path", "id", "table")))
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                "a reference to a checkpoint can't be read; the file is broken"
            ) from None

    def open(self) -> Checkpoint:
        """The checkpoint.

        Raises:
            FileNotFoundError: it isn't there.
            BrokenCheckpoint: another one is there.
        """
        path = _moved.get() or self.path
        try:
            found = Checkpoint(path)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"the file has table '{self.table}' in a checkpoint: {error}. If it was moved: "
                "`with me.saving.tables_from(path):` around the loading"
            ) from None
        if found.id != self.id or self.table not in found.tables:
            raise BrokenCheckpoint(
                f"the file has table '{self.table}' in a checkpoint that was at {self.path}; "
                f"another one is at {path}"
            )
        return found

    def check(self, variable: Any, name: str, slot: str | None = None) -> None:
        """Raises ValueError unless `read` can fill a variable: see there."""
        info = self.open().tables[self.table]
        shape = (info.dim,) if slot is None else info.slots[slot].shape
        check_some(
            variable, np.arange(variable.shape[0]), np.broadcast_to(0, (info.rows, *shape)), name
        )

    def read(self, variable: Any, name: str, slot: str | None = None) -> None:
        """Fills a variable.

        Args:
            variable: [R, ...], of a table or of a slot.
            name: what messages call it.
            slot: which, or None for the vectors.
        """
        slots = [] if slot is None else [slot]
        for entries in self.open().entries(self.table, slots=slots):
            values = entries.vectors if slot is None else entries.slots[slot]
            write_some(variable, entries.keys, values, name)


def reference_to(table: DenseTable) -> Reference | None:
    """What a file that is being written is to say of a table in its place, or None."""
    return (_tables.get() or {}).get(id(table))


@contextmanager
def referring(tables: Mapping[str, DenseTable], path: Path, checkpoint: str) -> Iterator[None]:
    """Has files that are written meanwhile hold references.

    Args:
        tables: by their names in the checkpoint.
        path: of the checkpoint.
        checkpoint: its id.
    """
    found = {id(t): Reference(str(path), checkpoint, name) for name, t in tables.items()}
    token = _tables.set(found)
    try:
        yield
    finally:
        _tables.reset(token)


@contextmanager
def moved_to(path: str) -> Iterator[None]:
    """Has files that are read meanwhile refer to the checkpoint at `path`."""
    token = _moved.set(path)
    try:
        yield
    finally:
        _moved.reset(token)
