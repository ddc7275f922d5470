"""Entries: rows of a table on their way to or from somewhere else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf


def _no_keys() -> np.ndarray:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class Entries:
    """N rows of a table with all that belongs to them, in host memory.

    Attributes:
        keys: [N] int64, unique. The global row.
        vectors: [N, D], floating point.
        slots: optimizer slots by name, each [N, ...]: an accumulator that keeps one value a row
            is [N], one that keeps a value for each element is [N, D].
        scores: [N] or None: what an eviction policy knows of the row.
        erased: [E] int64, unique, none of them in `keys`: rows that no longer hold anything.

    Raises:
        TypeError: keys that aren't integers, vectors or slots that aren't floating point.
        ValueError: shapes that don't fit together, or a key that stands twice.

    Example:
        >>> import numpy as np
        >>> import merlin_embeddings as me
        >>> entries = me.tables.Entries(keys=[3, 5], vectors=np.ones((2, 4), "float32"))
        >>> len(entries), entries.dim
        (2, 4)
    """

    keys: np.ndarray
    vectors: np.ndarray
    slots: Mapping[str, np.ndarray] = field(default_factory=dict)
    scores: np.ndarray | None = None
    erased: np.ndarray = field(default_factory=_no_keys)

    def __post_init__(self) -> None:
        keys = _as_keys("keys", self.keys)
        erased = _as_keys("erased", self.erased)
        both = np.intersect1d(keys, erased) if erased.size else erased
        if both.size:
            raise ValueError(f"Entries: key {both[0]} is both written and erased")
        vectors = _as_floats("vectors", self.vectors)
        if vectors.ndim != 2 or len(vectors) != len(keys):
            raise ValueError(
                f"Entries: vectors must be [N, D] with N = {len(keys)} keys, "
                f"got shape {list(vectors.shape)}"
            )
        slots = {name: _as_floats(f"slot '{name}'", value) for name, value in self.slots.items()}
        for name, value in slots.items():
            _require_rows(f"slot '{name}'", value, len(keys))
        scores = self.scores
        if scores is not None:
            scores = np.asarray(scores)
            _require_rows("scores", scores, len(keys))
        normal: dict[str, Any] = {
            "keys": keys,
            "vectors": vectors,
            "slots": slots,
            "scores": scores,
        }
        for name, value in {**normal, "erased": erased}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def trusted(
        cls,
        keys: np.ndarray,
        vectors: np.ndarray,
        slots: Mapping[str, np.ndarray],
        scores: np.ndarray | None = None,
    ) -> "Entries":
        """Entries of arrays that are known to be right, which aren't looked at.

        Args:
            keys: [N] int64, unique.
            vectors: [N, D], floating point.
            slots: [N, ...] each, floating point.
            scores: [N] or None.
        """
        self = object.__new__(cls)
        given = {"keys": keys, "vectors": vectors, "slots": slots, "scores": scores}
        for name, value in {**given, "erased": _no_keys()}.items():
            object.__setattr__(self, name, value)
        return self

    def take(self, which: np.ndarray | slice) -> "Entries":
        """Some of the rows, without `erased`.

        Args:
            which: [N] bool, a slice, or [K] integers, unique.
        """
        slots = {name: values[which] for name, values in self.slots.items()}
        scores = None if self.scores is None else self.scores[which]
        return Entries.trusted(self.keys[which], self.vectors[which], slots, scores)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def dim(self) -> int:
        """D, the number of columns of the vectors."""
        return self.vectors.shape[1]

    def __repr__(self) -> str:
        parts = [f"{len(self)} keys", f"vectors {list(self.vectors.shape)} {self.vectors.dtype}"]
        parts += [f"{name} {list(value.shape)}" for name, value in self.slots.items()]
        if self.scores is not None:
            parts.append("scores")
        if len(self.erased):
            parts.append(f"{len(self.erased)} erased")
        return f"Entries({', '.join(parts)})"


def _as_keys(what: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"Entries: {what} must be integers, got {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"Entries: {what} must have one axis, got shape {list(array.shape)}")
    keys = array.astype(np.int64)
    if array.dtype == np.uint64 and (keys < 0).any():
        raise ValueError(f"Entries: {what} holds {array.max()}, which is no int64")
    if (keys[1:] > keys[:-1]).all():
        return keys
    unique, counts = np.unique(keys, return_counts=True)
    if len(unique) != len(keys):
        raise ValueError(f"Entries: {what} holds {unique[counts > 1][0]} more than once")
    return keys


def _as_floats(what: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    # numpy itself doesn't count bfloat16 as floating point.
    if not tf.as_dtype(array.dtype).is_floating:
        raise TypeError(f"Entries: {what} must be floating point, got {array.dtype}")
    return array


def _require_rows(what: str, value: np.ndarray, rows: int) -> None:
    if value.ndim == 0 or len(value) != rows:
        raise ValueError(
            f"Entries: {what} must have one value for each of {rows} keys, "
            f"got shape {list(value.shape)}"
        )
