"""Ids that are known beforehand, each with a row of its own."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings import config, native


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class KnownIds:
    """N distinct ids in the order of their rows: integers, or strings by their fingerprints.

    What specs hold of a vocabulary. Plain data (a layer's config) have its size and a digest; the
    ids themselves are weights of the layer that owns them, so that files hold them once and no
    config grows with them. What was made from plain data has no ids: they come back with the
    weights.

    Args:
        keys: `[N]` int64, or None.
        size, strings, digest: N, whether the ids are strings, and what tells vocabularies apart,
            where there are no keys.

    >>> KnownIds.of(["Rome", "Oslo"], "Vocabulary")
    KnownIds(2 strings)
    """

    keys: np.ndarray | None
    size: int = 0
    strings: bool = False
    digest: str = ""

    def __post_init__(self) -> None:
        if self.keys is not None:
            digest = hashlib.blake2b(self.keys.tobytes(), digest_size=16).hexdigest()
            object.__setattr__(self, "size", len(self.keys))
            object.__setattr__(self, "digest", digest)

    @classmethod
    def of(cls, ids: Any, spec: str) -> KnownIds:
        """Known ids, of what a user gives.

        Args:
            ids: N distinct integers or strings: a list, an array, a tensor; or KnownIds.
            spec: who asks, for messages.

        Raises:
            TypeError: other things than integers or strings.
            ValueError: none, another rank, an integer that is no int64, or an id that comes twice.
        """
        if isinstance(ids, KnownIds):
            return ids
        array = as_ids(ids, spec)
        if array.size == 0:
            raise ValueError(f"{spec}: ids is empty; give one id at least.")
        keys = to_keys(array)
        check_distinct(keys, array, spec)
        return cls(keys, strings=is_text(array))

    def __repr__(self) -> str:
        return f"KnownIds({self.size} {'strings' if self.strings else 'integers'})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownIds) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple:
        return (self.size, self.strings, self.digest)


def as_ids(ids: Any, spec: str) -> np.ndarray:
    """A vector of int64 or of strings (bytes, as objects).

    Raises:
        TypeError, ValueError: as `KnownIds.of` does.
    """
    if tf.is_tensor(ids):
        ids = ids.numpy()
    array = ids if isinstance(ids, np.ndarray) else _array(_listed(ids, spec))
    if array.ndim != 1:
        raise ValueError(f"{spec}: ids have shape {list(array.shape)}; they are a vector.")
    if array.dtype.kind == "O" or array.dtype.kind in "US":
        return np.array([_as_bytes(one, spec) for one in array.tolist()], object)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{spec}: ids have dtype {array.dtype}; they are integers or strings.")
    if array.dtype == np.uint64 and array.max() >= 2**63:
        raise ValueError(
            f"{spec}: ids hold {array.max()}, which is no int64; give the same 64 bits, "
            "ids.view(np.int64), and look up tf.bitcast(ids, tf.int64)."
        )
    return array.astype(np.int64)


def is_text(ids: np.ndarray) -> bool:
    """Whether what `as_ids` gave are strings."""
    return ids.dtype == object


def to_keys(ids: np.ndarray) -> np.ndarray:
    """What `as_ids` gave as int64: strings by their fingerprints, as bags make ids of them."""
    if not is_text(ids):
        return ids
    if not len(ids):
        return np.empty(0, np.int64)
    with tf.init_scope():  # numbers, known before a graph runs
        return native.hash_strings(tf.constant(list(ids), tf.string)).numpy()


def check_distinct(keys: np.ndarray, ids: np.ndarray, spec: str) -> None:
    """Raises ValueError, naming the id, if a key stands twice among `keys` of `ids`, [N] each."""
    unique, first, counts = np.unique(keys, return_index=True, return_counts=True)
    if len(unique) == len(ids):
        return
    at = int(np.argmax(counts > 1))
    first_id, again = ids[first[at]], ids[np.flatnonzero(keys == unique[at])[1]]
    if first_id != again:
        raise ValueError(
            f"{spec}: the strings {shown(first_id)!r} and {shown(again)!r} have one fingerprint, "
            "so that nothing can tell them apart; leave one of them out."
        )
    raise ValueError(f"{spec}: id {shown(first_id)!r} comes twice; give each id once.")


def shown(id: Any) -> Any:
    """An id as messages print it."""
    return id.decode("utf-8", "backslashreplace") if isinstance(id, bytes) else int(id)


def _array(listed: list) -> np.ndarray:
    # Bytes are objects: numpy's own bytes lose zeros at their end.
    return np.array(listed, object if listed and isinstance(listed[0], bytes) else None)


def _listed(ids: Any, spec: str) -> list:
    if isinstance(ids, (str, bytes, Mapping)) or not isinstance(ids, Iterable):
        raise TypeError(
            f"{spec}: ids={ids!r}; they are a list, an array or a tensor of integers or strings."
        )
    listed = list(ids)
    if any(isinstance(one, (str, bytes)) for one in listed):
        return [_as_bytes(one, spec) for one in listed]  # or numpy makes strings of integers
    return listed


def _as_bytes(one: Any, spec: str) -> bytes:
    if isinstance(one, str):
        return one.encode()
    if isinstance(one, bytes):
        return one
    raise TypeError(
        f"{spec}: id {one!r} is a {type(one).__name__}; ids are all integers or all strings."
    )


config.foreign(
    "KnownIds",
    KnownIds,
    lambda known: {"size": known.size, "strings": known.strings, "digest": known.digest},
    lambda plain: KnownIds(None, plain["size"], plain["strings"], plain["digest"]),
)
