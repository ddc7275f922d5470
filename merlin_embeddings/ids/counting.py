"""How often ids come in data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings import config
from merlin_embeddings.ids.known import as_ids, is_text

# Distinct ids that are kept apart before they are summed up.
_PENDING = 1 << 22


def count(data: Any, padding_id: int | str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ids of data and how often each comes, the most frequent first.

    Args:
        data: integers or strings: a list, an array, a column of a DataFrame, a tensor (dense,
            ragged or sparse) of any shape, or a `tf.data.Dataset` or another iterable of those.
        padding_id: this id isn't counted.

    Returns:
        `(ids [N], counts [N] int64)`; ids are int64 or, as objects, bytes. Equally frequent ids
        ascend.

    Raises:
        TypeError: other things than integers or strings, or both.

    >>> ids, counts = count([[7, 3, 7], [7, 3, 5]])
    >>> ids.tolist(), counts.tolist()
    ([7, 3, 5], [3, 2, 1])
    """
    ids, counts = _empty(), np.empty(0, np.int64)
    pending: list[tuple[np.ndarray, np.ndarray]] = []
    size = 0
    for part in _parts(data):
        found, its_counts = np.unique(part, return_counts=True)
        pending.append((found, its_counts.astype(np.int64)))
        size += len(found)
        if size > _PENDING:
            ids, counts = summed([(ids, counts), *pending])
            pending, size = [], 0
    ids, counts = summed([(ids, counts), *pending])
    if padding_id is not None:
        padding = padding_id.encode() if isinstance(padding_id, str) else padding_id
        ids, counts = ids[ids != padding], counts[ids != padding]
    return by_frequency(ids, counts)


def summed(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct ids of several lists, ascending, their counts added up.

    Raises:
        TypeError: integers and strings.
    """
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return _empty(), np.empty(0, np.int64)
    if len({is_text(ids) for ids, _ in parts}) > 1:
        raise TypeError("ids.count: the data have both integers and strings; ids are one of them.")
    ids, place = np.unique(np.concatenate([ids for ids, _ in parts]), return_inverse=True)
    counts = np.zeros(len(ids), np.int64)
    np.add.at(counts, place, np.concatenate([counts for _, counts in parts]))
    return ids, counts


def by_frequency(ids: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same, the most frequent first; of equal counts, the lower id."""
    ascending = np.argsort(ids, kind="stable")
    order = ascending[np.argsort(-counts[ascending], kind="stable")]
    return ids[order], counts[order]


def as_counts(counts: Any, size: int, spec: str) -> np.ndarray:
    """`[N]` int64 for the counts of N ids.

    Raises:
        TypeError: no integers.
        ValueError: another number of counts than of ids, or a negative one.
    """
    array = counts.numpy() if tf.is_tensor(counts) else np.asarray(counts)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{spec}: counts have dtype {array.dtype}; they are integers.")
    if array.shape != (size,):
        raise ValueError(
            f"{spec}: counts have shape {list(array.shape)} for {size} ids; give one for each id."
        )
    if array.size and array.min() < 0:
        at = int(np.argmin(array))
        raise ValueError(f"{spec}: counts[{at}]={array[at]}; a count is 0 or more.")
    return array.astype(np.int64)


def _empty() -> np.ndarray:
    return np.empty(0, np.int64)


def _parts(data: Any) -> Iterator[np.ndarray]:
    """The data as vectors of ids."""
    if isinstance(data, tf.RaggedTensor):
        data = data.flat_values
    if isinstance(data, tf.SparseTensor):
        data = data.values
    if tf.is_tensor(data) or isinstance(data, np.ndarray):
        yield as_ids(np.ravel(data.numpy() if tf.is_tensor(data) else data), "ids.count")
    elif isinstance(data, (str, bytes)) or config.is_int(data):
        yield as_ids([data], "ids.count")
    elif isinstance(data, (list, tuple)) and not any(map(_is_nested, data)):
        yield as_ids(data, "ids.count")
    elif hasattr(data, "to_numpy"):  # a column of a DataFrame
        yield from _parts(data.to_numpy())
    elif isinstance(data, Iterable) and not isinstance(data, Mapping):
        for part in data:
            yield from _parts(part)
    else:
        raise TypeError(
            f"ids.count: the data have a {type(data).__name__}; they are integers or strings: "
            "lists, arrays, tensors, or a tf.data.Dataset of one column's ids "
            "(dataset.map(lambda batch: batch['item']))."
        )


def _is_nested(item: Any) -> bool:
    return not isinstance(item, (str, bytes)) and (tf.is_tensor(item) or isinstance(item, Iterable))
