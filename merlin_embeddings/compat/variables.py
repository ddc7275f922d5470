"""Variables: a Keras 3 variable wraps what in Keras 2 is the variable itself."""

from __future__ import annotations

import re
import zlib
from typing import Any

import tensorflow as tf


def raw_variable(variable: Any) -> tf.Variable:
    """The ``tf.Variable`` behind a Keras 3 variable; a ``tf.Variable`` itself otherwise.

    Of a mirrored variable it is the part that this replica has; across replicas, the first: a
    mirrored variable looks like a variable, but has no handle outside of a replica.
    """
    whole = _whole_variable(variable)
    parts = replicas_of(variable)
    if (
        len(parts) == 1
        or tf.distribute.in_cross_replica_context()
        or not tf.distribute.has_strategy()
    ):
        return parts[0]
    return next(part for part in parts if part.handle is whole.handle)


def replicas_of(variable: Any) -> list[tf.Variable]:
    """The parts of a mirrored variable, one for each replica; of any other one, itself alone."""
    whole = _whole_variable(variable)
    strategy = getattr(whole, "distribute_strategy", None)
    return [whole] if strategy is None else list(strategy.experimental_local_results(whole))


def _whole_variable(variable: Any) -> Any:
    # Keras 3 wraps variables and gives the tf.Variable as .value (for one made with
    # autocast=False); in Keras 2 variables are tf.Variables, whose .value is a method.
    value = variable.value
    return variable if callable(value) else value


try:
    from tensorflow.python.ops.resource_variable_ops import variable_accessed as _accessed
except ImportError:
    _accessed = None


def mark_accessed(variable: tf.Variable) -> None:
    """Makes gradient tapes and function graphs watch a variable that only an op's handle names.

    Reading a variable does this, but every public way to read puts an op into the graph: an empty
    ``sparse_read`` for each of 26 tables is a quarter of a small forward pass. So this is the
    private call that all of them make first; a TensorFlow without it gets the empty read.
    """
    if _accessed is not None:
        _accessed(variable)
    elif variable.trainable:
        variable.sparse_read(tf.zeros([0], tf.int64))


def weight_name(name: str) -> str:
    """A name that TensorFlow can give a variable: other characters become "_", and a checksum keeps
    names apart.

    >>> weight_name("item.id"), weight_name("item id"), weight_name("item:id")
    ('item.id', 'item_id_4dc27d33', 'item_id_5c735b95')
    """
    allowed = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    return name if allowed == name else f"{allowed}_{zlib.crc32(name.encode()):08x}"


def path_of(variable: Any) -> str:
    """Where a weight is in its model, as in ``"item/embeddings"``."""
    return getattr(variable, "path", None) or variable.name.removesuffix(":0")


def has_memory(variable: Any) -> bool:
    """Whether a variable exists.

    To find shapes, Keras 3 calls a subclassed model with symbols first and makes the variables only
    afterwards; there is no public way to ask.
    """
    return getattr(variable, "_value", variable) is not None


def on_host() -> Any:
    """Where tables and their slots are made: beside the ops, which run on CPUs only.

    Without it a machine with a GPU would put them there, out of the ops' reach.
    """
    return tf.device("CPU:0")
