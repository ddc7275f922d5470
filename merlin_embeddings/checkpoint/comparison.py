"""How two checkpoints differ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from merlin_embeddings.checkpoint.layout import numpy_dtype
from merlin_embeddings.checkpoint.manifest import TableInfo
from merlin_embeddings.checkpoint.reader import Checkpoint
from merlin_embeddings.checkpoint.shards import row_bytes
from merlin_embeddings.tables import Entries

# About how much of each side is in memory at a time.
_PART = 64 << 20


@dataclass(frozen=True)
class TableDiff:
    """How a table differs.

    Attributes:
        name: the table's.
        info: what is said of it differently, by name: what the one says, and the other.
        only_a: how many keys the one has alone.
        only_b: how many keys the other has alone.
        same: how many rows are the same in both, bit for bit, with their slots.
        different: how many rows aren't.
        largest: the largest difference of two numbers, by column: "vectors", "slot.<name>",
            "scores"; of columns that both have.
    """

    name: str
    info: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    only_a: int = 0
    only_b: int = 0
    same: int = 0
    different: int = 0
    largest: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is a difference."""
        return bool(self.info or self.only_a or self.only_b or self.different)


@dataclass(frozen=True)
class Diff:
    """How two checkpoints differ.

    Attributes:
        tables: of those that both have, by name.
        only_a: tables that the one has alone.
        only_b: tables that the other has alone.
        groups: arrays that differ, or that one has alone, as "group/name".
    """

    tables: Mapping[str, TableDiff]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    groups: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether there is a difference."""
        return bool(self.only_a or self.only_b or self.groups or any(self.tables.values()))


def diff(a: str | os.PathLike, b: str | os.PathLike) -> Diff:
    """Compares two checkpoints, with what they go on from.

    Tables whose keys are rows are compared range by range. Those whose keys are ids are read
    several times where they are large: each time some of the ids are compared.

    Args:
        a: path of the one.
        b: path of the other.

    Raises:
        FileNotFoundError: there is no checkpoint, or a file of it is missing.
        BrokenCheckpoint: a file isn't what was written.
    """
    one, other = Checkpoint(a), Checkpoint(b)
    both = [name for name in one.tables if name in other.tables]
    return Diff(
        tables={name: _table(one, other, name) for name in both},
        only_a=tuple(name for name in one.tables if name not in other.tables),
        only_b=tuple(name for name in other.tables if name not in one.tables),
        groups=tuple(_groups(one, other)),
    )


def _groups(one: Checkpoint, other: Checkpoint) -> Iterator[str]:
    for group in sorted({*one.groups, *other.groups}):
        a, b = (side.arrays(group) if group in side.groups else {} for side in (one, other))
        for name in sorted({*a, *b}):
            if name not in a or name not in b or not _equal(a[name], b[name]):
                yield f"{group}/{name}"


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()


def _table(one: Checkpoint, other: Checkpoint, name: str) -> TableDiff:
    a, b = one.tables[name], other.tables[name]
    told = {
        what: (getattr(a, what), getattr(b, what))
        for what in ("rows", "dim", "dtype", "key", "slots", "scores", "ids", "compression")
        if getattr(a, what) != getattr(b, what)
    }
    if a.key != b.key or a.dim != b.dim:
        return TableDiff(name, told)
    total = TableDiff(name, told)
    for part in _parts(a, b):
        total = _sum(total, _part(part(one, name), part(other, name), total))
    return total


Part = Callable[[Checkpoint, str], Entries]


def _parts(a: TableInfo, b: TableInfo) -> Iterator[Part]:
    rows = max(a.rows, b.rows)
    size = max(row_bytes(a), row_bytes(b))
    if a.key == "row":
        step = max(_PART // size, 1)
        for start in range(0, rows, step):
            yield partial(_rows, keys=range(start, start + step))
        return
    parts = max(-(-rows * size // _PART), 1)
    for number in range(parts):
        yield partial(_ids, parts=parts, number=number)


def _rows(side: Checkpoint, name: str, keys: range) -> Entries:
    return _joined(side, name, side.entries(name, keys=keys))


def _ids(side: Checkpoint, name: str, parts: int, number: int) -> Entries:
    every = side.entries(name)
    return _joined(side, name, (some.take(some.keys % parts == number) for some in every))


def _joined(side: Checkpoint, name: str, entries: Iterator[Entries]) -> Entries:
    """One Entries, its keys in ascending order."""
    info = side.tables[name]
    slots = {slot: np.empty((0, *i.shape), numpy_dtype(i.dtype)) for slot, i in info.slots.items()}
    none = np.empty((0, info.dim), numpy_dtype(info.dtype))
    scores = None if info.scores is None else np.empty(0, numpy_dtype(info.scores))
    found = [Entries.trusted(np.empty(0, np.int64), none, slots, scores), *entries]
    whole = Entries.trusted(
        np.concatenate([e.keys for e in found]),
        np.concatenate([e.vectors for e in found]),
        {slot: np.concatenate([e.slots[slot] for e in found]) for slot in slots},
        None if scores is None else np.concatenate([np.asarray(e.scores) for e in found]),
    )
    return whole.take(np.argsort(whole.keys))


def _part(a: Entries, b: Entries, before: TableDiff) -> TableDiff:
    both, in_a, in_b = np.intersect1d(a.keys, b.keys, assume_unique=True, return_indices=True)
    equal = np.ones(len(both), bool)
    largest = dict(before.largest)
    there = _columns(b)
    for name, values in _columns(a).items():
        if name not in there or values.shape[1:] != there[name].shape[1:]:
            continue
        left, right = values[in_a], there[name][in_b]
        equal &= _same_bits(left, right)
        if len(both):
            apart = np.abs(left.astype(np.float64) - right.astype(np.float64))
            largest[name] = max(largest.get(name, 0.0), float(np.nanmax(apart, initial=0.0)))
    return TableDiff(
        before.name,
        before.info,
        len(a) - len(both),
        len(b) - len(both),
        int(equal.sum()),
        int((~equal).sum()),
        largest,
    )


def _sum(a: TableDiff, b: TableDiff) -> TableDiff:
    return TableDiff(
        a.name,
        a.info,
        a.only_a + b.only_a,
        a.only_b + b.only_b,
        a.same + b.same,
        a.different + b.different,
        b.largest,
    )


def _columns(entries: Entries) -> dict[str, np.ndarray]:
    found = {f"slot.{name}": values for name, values in entries.slots.items()}
    if entries.scores is not None:
        found["scores"] = entries.scores
    return {"vectors": entries.vectors, **found}


def _same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[N] bool: which rows are the same bit for bit."""
    if a.dtype != b.dtype:
        return np.all(a.astype(np.float64) == b.astype(np.float64), axis=tuple(range(1, a.ndim)))
    rows = [np.ascontiguousarray(x).reshape(len(x), -1).view(np.uint8) for x in (a, b)]
    return (rows[0] == rows[1]).all(axis=1)
