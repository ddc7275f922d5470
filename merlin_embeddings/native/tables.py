"""Values for tables: made, moved and written by the library."""

from __future__ import annotations

import tensorflow as tf

from merlin_embeddings.native.library import ops


def initial_table(
    rows: int,
    dim: int,
    dtype: tf.DType,
    kind: str,
    params: tuple[float, float],
    seed: int,
    table: str,
    zeros: int = 0,
) -> tf.Tensor:
    """Values [rows, dim] of a fresh table, each a function of (seed, table, row, column) alone.

    ``kind`` and ``params``: ``"constant"`` (value, 0), ``"uniform"`` (low, high), ``"normal"`` and
    ``"truncated_normal"`` (mean, standard deviation; cut at two of them). The memory is on huge
    pages where the system grants them. A constant 0 costs no memory until rows are touched, nor do
    the first ``zeros`` rows, which are 0 whatever the law; the others begin with row 0 of it.
    """
    return ops.merlin_initial_table(
        rows=rows,
        dim=dim,
        dtype=dtype,
        kind=kind,
        first=params[0],
        second=params[1],
        seed=seed,
        table=table,
        zeros=zeros,
    )


def initial_rows(
    keys: tf.Tensor,
    dim: int,
    dtype: tf.DType,
    kind: str,
    params: tuple[float, float],
    seed: int,
    table: str,
) -> tf.Tensor:
    """The values [N, dim] that :func:`initial_table` gives to rows ``keys`` [N] int64."""
    return ops.merlin_initial_rows(
        keys=keys,
        dim=dim,
        dtype=dtype,
        kind=kind,
        first=params[0],
        second=params[1],
        seed=seed,
        table=table,
    )


def to_huge_pages(values: tf.Tensor) -> tf.Tensor:
    """A copy of ``values`` in memory of huge pages."""
    return ops.merlin_to_huge_pages(values=values)


def write_rows(
    variable: tf.Variable, rows: tf.Tensor, values: tf.Tensor, name: str = "table"
) -> tf.Operation | None:
    """Writes ``values`` [N, ...] into ``rows`` [N] int64 of ``variable`` in place.

    A buffer that somebody else holds is copied first. All rows are checked before one is written;
    InvalidArgumentError speaks of ``name``. Returns the
    operation, None in eager mode.
    """
    return ops.merlin_write_rows(table=variable.handle, rows=rows, values=values, label=name)


def buffer_serial(variable: tf.Variable) -> tf.Tensor:
    """A number, int64 [], that the variable's present buffer alone ever has.

    A buffer that `assign` bound comes from elsewhere and has no number; its value is moved into one
    that has, on huge pages, so that it is another number than before. A write in place keeps it.
    """
    return ops.merlin_buffer_serial(table=variable.handle)
