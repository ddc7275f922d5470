"""What the specs of several stateful maps check of their fields."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from merlin_embeddings import config
from merlin_embeddings.ids import policies


def check_range(spec: Any, field: str, low: int, high: int) -> None:
    """Keeps a field as a Python integer, or raises ValueError if it isn't one in [low, high]."""
    value = getattr(spec, field)
    if not config.is_int(value) or not low <= value <= high:
        raise ValueError(
            f"ids.{type(spec).__name__}: {field}={value!r}; it must be an integer in "
            f"[{low}, {high}]."
        )
    object.__setattr__(spec, field, int(value))


def set_policy(spec: Any, field: str) -> None:
    """Keeps a field as the policy that it means, or raises ValueError."""
    try:
        policy = policies.get(getattr(spec, field))
    except ValueError as error:
        raise ValueError(f"ids.{type(spec).__name__}: {field}: {error}") from None
    object.__setattr__(spec, field, policy)


def as_ids(ids: Any, name: str) -> tf.Tensor:
    """Ids `[N]` as int64.

    Raises:
        TypeError: no integers, or uint64, half of whose values are no int64.
        ValueError: another rank.
    """
    tensor = tf.convert_to_tensor(ids)
    if tensor.dtype == tf.uint64:
        raise TypeError(
            f"{name}: ids have dtype uint64, half of whose values are no int64; give the same 64 "
            "bits, tf.bitcast(ids, tf.int64)."
        )
    tensor = as_integers(tensor, "ids", name)
    if tensor.shape.rank not in (1, None):
        raise ValueError(f"{name}: ids have shape {tensor.shape}; they are a vector.")
    return tensor


def as_integers(values: Any, what: str, name: str) -> tf.Tensor:
    """Integers of any kind as int64; floats aren't rounded.

    Args:
        values: a tensor, or what becomes one; a list of nothing is one of integers.
        what: they are, for messages.
        name: whose they are.

    Raises:
        TypeError: they are no integers.
    """
    tensor = tf.convert_to_tensor(values)
    if not tensor.dtype.is_integer and tensor.shape.num_elements() != 0:
        raise TypeError(f"{name}: {what} have dtype {tensor.dtype.name}; they are integers.")
    return tf.cast(tensor, tf.int64)
