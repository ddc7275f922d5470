"""Reading and writing some rows of a variable, or all of it."""

from collections.abc import Callable

import tensorflow as tf

from merlin_embeddings import compat, native

# Rows that a pass over a variable has in memory at once.
CHUNK = 65536


def read(variable: tf.Variable, rows: tf.Tensor | None) -> tf.Tensor:
    """The variable's rows [N, ...]; with rows None, all of it.

    Args:
        variable: [R, ...], or of any shape when rows is None.
        rows: [N] integers.
    """
    raw = compat.raw_variable(variable)
    return tf.convert_to_tensor(raw) if rows is None else raw.sparse_read(rows)


def write(variable: tf.Variable, rows: tf.Tensor | None, values: tf.Tensor) -> None:
    """Writes rows of a variable in place; with rows None, all of it.

    Args:
        variable: [R, ...], or of any shape when rows is None.
        rows: [N] integers; a row that is there twice must have one value.
        values: [N, ...], cast to the variable's dtype.
    """
    raw = compat.raw_variable(variable)
    values = tf.cast(values, raw.dtype)
    if rows is None:
        raw.assign(values)
    elif raw.dtype == tf.float64:
        raw.scatter_update(tf.IndexedSlices(values, rows))
    else:
        native.write_rows(raw, tf.cast(rows, tf.int64), values)


def across(per_row: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """`per_row` [N] with axes of size 1, as many as `values` [N, ...] has more."""
    for _ in range(values.shape.rank - per_row.shape.rank):
        per_row = per_row[..., tf.newaxis]
    return per_row


def for_rows_with(flag: tf.Variable, act: Callable[[tf.Tensor], None]) -> None:
    """Calls `act(rows)` with the rows whose flag is above 0, some at a time.

    Args:
        flag: [R]. All of it is read, and nothing else of this size made.
        act: of [N] int64, N up to `CHUNK`; called once when a graph is traced.
    """
    count = flag.shape[0]

    def body(begin: tf.Tensor) -> tuple[tf.Tensor]:
        rows = tf.range(begin, tf.minimum(begin + CHUNK, count), dtype=tf.int64)
        act(tf.boolean_mask(rows, read(flag, rows) > 0))
        return (begin + CHUNK,)

    tf.while_loop(
        lambda begin: begin < count,
        body,
        (tf.constant(0, tf.int64),),
        parallel_iterations=1,
    )
