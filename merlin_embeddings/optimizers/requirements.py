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


def refuse_sweeps(optimizer: str, use_ema: bool, gradient_accumulation_steps: int | None) -> None:
    """Raises ValueError, naming the way out, for what goes over whole tables in each step."""
    asked = {"use_ema": use_ema, "gradient_accumulation_steps": gradient_accumulation_steps}
    for argument, value in asked.items():
        if value:
            raise ValueError(
                f"{optimizer}: {argument}={value} would read and write every row of every table in "
                "each step. For the rest of the model it works in Split: "
                f"Split(dense=keras.optimizers.Adam({argument}={value}), "
                f"embeddings={optimizer}(...))"
            )
