"""What the optimizers ask of their surroundings, checked before anything is built."""

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat


def require_keras_3(optimizer: str) -> None:
    """Raises RuntimeError, naming the optimizer, unless TensorFlow's Keras is Keras 3."""
    if not compat.has_keras_3():
        raise RuntimeError(
            f"{optimizer} is made for Keras 3 (TensorFlow 2.16 or later), but this TensorFlow "
            f"{tf.__version__} has Keras {keras.__version__}"
        )


def require_not_negative(optimizer: str, **arguments: float | None) -> None:
    """Raises ValueError, naming the argument, for a number below 0 (None is none)."""
    for argument, value in arguments.items():
        if value is not None and not value >= 0:
            raise ValueError(f"{optimizer}: {argument} must not be negative, got {value}")


def require_positive(optimizer: str, **arguments: float | None) -> None:
    """Raises ValueError, naming the argument, for a number that isn't above 0 (None is none)."""
    for argument, value in arguments.items():
        if value is not None and not value > 0:
            raise ValueError(f"{optimizer}: {argument} must be positive, got {value}")
