"""The values of bags: what is an id, and what is padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings.native import asserted, hash_strings


def to_ids(values: tf.Tensor, name: str) -> tf.Tensor:
    """Integers or strings as int64.

    Raises:
        TypeError: another dtype.
        tf.errors.InvalidArgumentError: an unsigned integer of 2**63 or more.
    """
    if values.dtype == tf.int64:
        return values
    if values.dtype == tf.string:
        return hash_strings(values)
    if values.dtype == tf.uint64:
        return _from_uint64(values, name)
    if values.dtype.is_integer:
        return tf.cast(values, tf.int64)
    raise TypeError(
        f"{name}: ids have dtype {values.dtype.name}; ids are integers or strings. Cast them: "
        "tf.cast(ids, tf.int64)."
    )


def to_padding_id(padding_id: Any, strings: bool, name: str) -> Any:
    """The id of padding, a string hashed as the values are."""
    check_padding(padding_id, strings, name)
    if not isinstance(padding_id, str):
        return padding_id
    with tf.init_scope():  # a number, known before the graph runs
        return int(hash_strings(tf.constant(padding_id)))


def check_padding(padding_id: Any, strings: bool, name: str) -> None:
    """Raises TypeError if ids of this kind can't be padded with `padding_id`."""
    if isinstance(padding_id, str) and not strings:
        raise TypeError(f"{name}: padding_id={padding_id!r} is a string, but the ids are integers.")
    if isinstance(padding_id, (int, np.integer)) and strings:
        raise TypeError(
            f"{name}: padding_id={padding_id!r} is an integer, but the ids are strings; give the "
            "string that pads, such as padding_id=''."
        )


def _from_uint64(values: tf.Tensor, name: str) -> tf.Tensor:
    ids = tf.cast(values, tf.int64)  # the same 64 bits: what is too big turns negative
    beyond = tf.boolean_mask(values, ids < 0)
    message = (
        f"{name}: uint64 ids of 2**63 and above are no int64. For ids that may be any number give "
        "the same 64 bits, tf.bitcast(ids, tf.int64), and the table ids=ids.Modulo(rows). The ids:"
    )
    return asserted(ids, tf.equal(tf.size(beyond), 0), [message, beyond])
