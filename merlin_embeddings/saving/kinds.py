"""Which kind of optimizer keeps something: what one calls a velocity, another would misread."""

from __future__ import annotations

from typing import Any

from merlin_embeddings import optimizers
from merlin_embeddings.tables import DenseTable

_PACKAGES = ("keras", "merlin_embeddings", "tensorflow", "tf_keras")
# They keep the same, and differ in what they make of it.
_ALIKE = {"adamw": "adam"}


def serving(optimizer: Any, table: DenseTable | None) -> Any:
    """The optimizer that trains a table, or else, with None, all that isn't tables."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)  # scaled losses
    if isinstance(inner, optimizers.Legacy):
        inner = inner.optimizer
    if isinstance(inner, optimizers.Split):
        if table is None:
            return inner.dense
        return inner.overrides.get(table.name, inner.embeddings)
    return inner


def kind_of(optimizer: Any, table: DenseTable | None = None) -> str | None:
    """What is written of an optimizer: its rule's name, Keras's and ours alike.

    Args:
        optimizer: the model's, or None.
        table: whose; None: of all that isn't tables.

    >>> from tensorflow import keras
    >>> import merlin_embeddings as me
    >>> kind_of(me.optimizers.AdamW(0.1)), kind_of(keras.optimizers.Ftrl(0.1))
    ('adam', 'ftrl')
    """
    if optimizer is None:
        return None
    found = serving(optimizer, table)
    for one in type(found).__mro__:
        # A class of the user's own keeps what that does which it is derived from.
        package, name = one.__module__.partition(".")[0], one.__name__
        if package in _PACKAGES and not name.endswith("Optimizer"):
            return _ALIKE.get(name.lower(), name.lower())
        if name.endswith("Optimizer"):
            break
    return type(found).__name__.lower()
