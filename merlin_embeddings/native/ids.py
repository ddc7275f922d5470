"""The pure id maps, all features of a layer in one call."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from merlin_embeddings.native.library import ops


def check_range(
    ids: Sequence[tf.Tensor], sizes: Sequence[int], policies: Sequence[str], names: Sequence[str]
) -> list[tf.Tensor]:
    """Ids that are rows already: each of ``ids`` [N_f] must lie in [0, size).

    An id outside is an InvalidArgumentError (policy ``"error"``), row -1 (``"zero"``) or the
    nearest row (``"clip"``). Where all ids lie inside, the tensor itself comes back.
    """
    return list(
        ops.merlin_check_range(
            ids=list(ids), sizes=list(sizes), policies=list(policies), names=list(names)
        )
    )


def modulo(ids: Sequence[tf.Tensor], sizes: Sequence[int]) -> list[tf.Tensor]:
    """``ids mod size`` in [0, size), for every int64, negative ones too."""
    return list(ops.merlin_modulo(ids=list(ids), sizes=list(sizes)))


def hash_ids(
    ids: Sequence[tf.Tensor], sizes: Sequence[int], salts: Sequence[int]
) -> list[tf.Tensor]:
    """``XXH64(id, salt) * size >> 64`` in [0, size), of every int64's eight bytes, lowest first."""
    return list(ops.merlin_hash_ids(ids=list(ids), sizes=list(sizes), salts=list(salts)))


def hash_rows(
    rows: Sequence[tf.Tensor], sizes: Sequence[int], salts: Sequence[int], hashes: Sequence[int]
) -> list[tf.Tensor]:
    """Several rows in [0, size) for each row [N_f]: [N_f * hashes_f], those of a row side by side.

    The k-th one is that of :func:`hash_ids` with ``XXH64(k, salt)`` for a salt. Row -1 has -1.
    """
    return list(
        ops.merlin_hash_rows(
            rows=list(rows), sizes=list(sizes), salts=list(salts), hashes=list(hashes)
        )
    )


def row_splits(row_ids: tf.Tensor, nrows: tf.Tensor, name: str) -> tf.Tensor:
    """Row splits [R + 1] of sorted row numbers [N]; unsorted ones are an InvalidArgumentError."""
    return ops.merlin_row_splits(row_ids=row_ids, rows=nrows, label=name)
