"""Keras initializers, regularizers and constraints inside of specs."""

from __future__ import annotations

import functools
from typing import Any

from tensorflow import keras

from merlin_embeddings import config


def register() -> None:
    """Lets specs that hold such objects go to and from plain data."""
    for kind, base in (
        ("initializers", keras.initializers.Initializer),
        ("regularizers", keras.regularizers.Regularizer),
        ("constraints", keras.constraints.Constraint),
    ):
        module = getattr(keras, kind)
        config.foreign(f"keras.{kind}", base, module.serialize, module.deserialize)
    for field, kind in (("regularizer", keras.regularizers), ("constraint", keras.constraints)):
        config.field_rule(field, functools.partial(_known, kind))


def _known(kind: Any, value: Any) -> Any:
    """`value`, if it is a name or an object of this kind."""
    kind.get(value)
    return value
