"""What a format of other people's files is: a reader and a writer of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from merlin_embeddings.checkpoint.foreign.source import Source
from merlin_embeddings.checkpoint.layout import FLOATS, numpy_dtype
from merlin_embeddings.checkpoint.manifest import TableInfo

_SAME = {name: name for name in FLOATS}


def _none_lost(info: TableInfo) -> list[str]:
    return []


@dataclass(frozen=True)
class Format:
    """A format, both ways.

    Attributes:
        name: what users call it.
        title: what it is, in a line.
        recognise: whether a path holds it, by its first bytes or the names in it.
        read: the tables in a path.
        write: tables to a path that isn't there yet.
        dtypes: what becomes of each dtype of vectors and slots.
        lost: of a table, what has no place in the format, by name; dtypes aside.
    """

    name: str
    title: str
    recognise: Callable[[Path], bool]
    read: Callable[[Path], list[Source]]
    write: Callable[[Path, Sequence[Source]], None]
    dtypes: Mapping[str, str] = field(default_factory=lambda: _SAME)
    lost: Callable[[TableInfo], list[str]] = _none_lost

    def losses(self, info: TableInfo) -> list[str]:
        """What of a table this format can't hold, in words."""
        found = list(self.lost(info))
        kept = self.dtypes[info.dtype]
        if numpy_dtype(kept).itemsize < numpy_dtype(info.dtype).itemsize:
            found.append(f"{info.dtype} is rounded to {kept}")
        return found


def cast(values: np.ndarray, dtypes: Mapping[str, str], dtype: str) -> np.ndarray:
    """Vectors or slots in the dtype that a format has for them, rounded to the nearest."""
    return values.astype(numpy_dtype(dtypes[dtype]), copy=False)


def only_vectors(info: TableInfo) -> list[str]:
    """What is lost by a format that has vectors and nothing beside them."""
    lost = [f"slot '{name}'" for name in info.slots]
    return lost + ([] if info.scores is None else ["scores"])


def only_slots_lost(info: TableInfo) -> list[str]:
    """What is lost by a format that has scores, but no slots."""
    return [f"slot '{name}'" for name in info.slots]


def one(sources: Sequence[Source], path: Path) -> Source:
    """The only table, for a file that holds one.

    Raises:
        ValueError: there are several.
    """
    if len(sources) != 1:
        names = ", ".join(source.name for source in sources)
        raise ValueError(
            f"{path}: holds one table, not {len(sources)} ({names}); choose one, or write into a "
            "folder: a path without a file's ending"
        )
    return sources[0]
