"""Constraints on the rows that a step looked up."""

from typing import Any

import tensorflow as tf

from merlin_embeddings import compat, native
from merlin_embeddings.tables import table_of

_COLUMNS = (1, -1, (1,), [1], (-1,), [-1])


def require_rowwise(variable: tf.Variable) -> None:
    """Refuses a constraint that can't act on some rows of a table alone.

    Args:
        variable: any; only those of tables are looked at.

    Raises:
        ValueError: the constraint's `axis` isn't the columns' (`MaxNorm` and `UnitNorm` of Keras
            have `axis=0` by default, the norm of a column over all rows).
    """
    constraint: Any = getattr(variable, "constraint", None)
    table = table_of(variable)
    if table is not None and not _is_rowwise(constraint):
        raise ValueError(
            f"table '{table.name}': {type(constraint).__name__}(axis={constraint.axis}) spans all "
            "rows, and a step constrains only the rows that it looked up; use axis=1, the norm of "
            "a row"
        )


def constrain_rows(variable: tf.Variable, rows: tf.Tensor) -> None:
    """Applies the variable's constraint to some of its rows.

    Args:
        variable: [R, D]. If it isn't one of our tables and its constraint spans several rows, all
            of it is constrained, as Keras does.
        rows: [N] int64; duplicates do no harm.
    """
    constraint = getattr(variable, "constraint", None)
    if constraint is None:
        return
    raw = compat.raw_variable(variable)
    if not _is_rowwise(constraint):
        raw.assign(constraint(raw))
        return
    values = tf.convert_to_tensor(constraint(raw.sparse_read(rows)))
    native.write_rows(raw, tf.cast(rows, tf.int64), tf.cast(values, raw.dtype))


def _is_rowwise(constraint: Any) -> bool:
    return getattr(constraint, "axis", 1) in _COLUMNS
