"""Keras initializers, regularizers and constraints inside of specs."""

from __future__ import annotations

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
