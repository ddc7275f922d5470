"""All that a model and its optimizer are, beside their weights: which version has it where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.compat.versions import has_keras_3


def optimizer_variables(optimizer: Any) -> list:
    """What any Keras optimizer keeps, in a stated order; of wrappers, what they hold too."""
    if has_keras_3():
        return list(optimizer.variables)
    scale = _loss_scale_of(optimizer)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if isinstance(inner, keras.optimizers.legacy.Optimizer):
        # `variables()` of merlin-models' MultiOptimizer leaves some out.
        return [*scale, *inner.weights]
    variables = inner.variables
    return [*scale, *(variables() if callable(variables) else variables)]


def build_optimizer(optimizer: Any, variables: Sequence) -> None:
    """Has any Keras optimizer make its variables, as the first step would.

    Args:
        optimizer: one that may have them already.
        variables: all that will be trained.
    """
    variables = list(variables)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if has_keras_3():
        if not optimizer.built:
            optimizer.build(variables)
    elif isinstance(inner, keras.optimizers.legacy.Optimizer):
        _ = inner.iterations  # made when it is first asked for
        inner._create_all_weights(variables)
    elif not getattr(inner, "_built", False):
        inner.build(variables)


def random_variables(model: Any) -> list:
    """The states of the random generators of a model's layers.

    In Keras 2 layers have some after `tf.keras.backend.experimental.enable_tf_random_generator()`;
    by default they draw from ops whose state nobody can read.
    """
    if has_keras_3():
        weights = {id(weight) for weight in model.weights}
        return [variable for variable in model.variables if id(variable) not in weights]
    found = [getattr(layer, "_random_generator", None) for layer in model._flatten_layers()]
    made = [getattr(one, "_generator", None) for one in found]
    return [one.state for one in made if isinstance(one, tf.random.Generator)]


def process_generator() -> Any:
    """The variable of Keras's own random generator, which draws where no seed is given, or None.

    There is none in Keras 2, nor before something has been drawn; Keras has no public way to ask.
    """
    if not has_keras_3():
        return None
    try:
        from keras.src.backend.common import global_state
    except ImportError:
        return None
    generator = global_state.get_global_attribute("global_seed_generator")
    return None if generator is None else generator.state


def _loss_scale_of(optimizer: Any) -> list:
    """The variables of Keras 2's loss scaling, which aren't among the optimizer's."""
    state = getattr(optimizer, "_loss_scale", None)
    if not isinstance(optimizer, keras.mixed_precision.LossScaleOptimizer):
        return []
    return [
        v
        for v in (getattr(state, n, None) for n in ("_current_loss_scale", "_counter"))
        if isinstance(v, tf.Variable)
    ]
