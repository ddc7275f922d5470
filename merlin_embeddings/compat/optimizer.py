"""One interface to optimizers: that of Keras 3."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.compat import keras_2_attributes
from merlin_embeddings.compat.keras_2_optimizer import Keras2Optimizer
from merlin_embeddings.compat.versions import has_keras_3

# What our optimizers derive from: Keras' base, with Keras 3's interface whichever Keras it is.
Optimizer: Any = keras.optimizers.Optimizer if has_keras_3() else Keras2Optimizer

# Keras 3 has none.
LegacyOptimizer: Any = object if has_keras_3() else keras.optimizers.legacy.Optimizer


def callable_list(variables: Iterable) -> list:
    """An optimizer's ``variables``: a list, which in Keras 2 may be called, too."""
    return list(variables) if has_keras_3() else keras_2_attributes.CallableList(variables)


def is_built(optimizer: Any) -> bool:
    """Whether any Keras optimizer has its variables."""
    return bool(getattr(optimizer, "built" if has_keras_3() else "_built", False))


def has_fixed_learning_rate(optimizer: Any) -> bool:
    """Whether any Keras optimizer's learning rate is a number that can be set."""
    # In Keras 2 an optimizer with a schedule shows a variable, too.
    if has_keras_3():
        return isinstance(optimizer.learning_rate, keras.Variable)
    return isinstance(getattr(optimizer, "_learning_rate", None), tf.Variable)


def learning_rate_or_schedule(optimizer: Any) -> Any:
    """The schedule of an optimizer of ours in Keras 2, or its learning rate."""
    rate = getattr(getattr(optimizer, "dense", optimizer), "_learning_rate", None)
    scheduled = isinstance(rate, keras.optimizers.schedules.LearningRateSchedule)
    return rate if scheduled else optimizer.learning_rate


def settable(learning_rate: Any, setter: Callable[[float], None]) -> Any:
    """What an optimizer shows for its learning rate, where setting it is more than an `assign`.

    Keras 3 sets the attribute; Keras 2's callbacks read it and set what they got.
    """
    return learning_rate if has_keras_3() else keras_2_attributes.settable(learning_rate, setter)


def apply_gradients(
    optimizer: Any, gradients: Sequence, variables: Sequence, skip_gradients_aggregation: bool
) -> None:
    """One step of any Keras optimizer.

    Args:
        optimizer: ours, or Keras'.
        gradients: one for each variable, or None.
        variables: as many.
        skip_gradients_aggregation: whether replicas have summed the gradients already.
    """
    if isinstance(optimizer, Optimizer) and not skip_gradients_aggregation:
        optimizer.apply(gradients, variables)
    else:
        optimizer.apply_gradients(
            zip(gradients, variables, strict=True),
            skip_gradients_aggregation=skip_gradients_aggregation,
        )


def restore_loaded(optimizer: Any) -> None:
    """Ends `build` of an optimizer of ours: in Keras 2 it may have a state waiting for it."""
    if not has_keras_3():
        optimizer.restore_loaded()
