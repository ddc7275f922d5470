"""Our optimizers where Keras 2's legacy ones are asked for."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Legacy(compat.LegacyOptimizer):
    """An optimizer of this package as a `tf.keras.optimizers.legacy.Optimizer` of Keras 2.

    For what insists on that class, as merlin-models' `MultiOptimizer` does: it holds the optimizer
    and hands everything on to it. The steps are the same, one fused op for all tables of a lookup.
    `learning_rate` (and `lr`) is the held optimizer's, read and set.

    As that one, and other than Keras' legacy optimizers, it updates the variables that it got in
    its first step, and no others later.

        model.compile(
            mm.MultiOptimizer([
                mm.OptimizerBlocks(me.optimizers.Legacy(me.optimizers.RowwiseAdagrad(0.02)), tables)
            ], default_optimizer="adam")
        )

    Args:
        optimizer: one of this package's, not built, or the config of one.
        name: None: that of `optimizer`.
        learning_rate: to be set at once; None: the optimizer keeps its own.

    Raises:
        RuntimeError: on Keras 3, which has no legacy optimizers.
        TypeError: an optimizer that isn't this package's.
        ValueError: one with `loss_scale_factor`, by which nobody here would scale the loss.
    """

    def __init__(self, optimizer: Any, name: str | None = None, learning_rate: Any = None) -> None:
        if compat.has_keras_3():
            raise RuntimeError(
                f"Legacy is for Keras 2, this is Keras {keras.__version__}, which has no legacy "
                "optimizers; give Keras the optimizer itself"
            )
        if isinstance(optimizer, dict):
            optimizer = keras.optimizers.deserialize(optimizer)
        if not isinstance(optimizer, compat.Optimizer):
            raise TypeError(
                f"Legacy: optimizer must be one of merlin_embeddings.optimizers, got {optimizer!r}"
            )
        if optimizer.loss_scale_factor is not None:
            raise ValueError(
                f"Legacy: the loss isn't scaled by {optimizer.name}'s loss_scale_factor="
                f"{optimizer.loss_scale_factor}; use tf.keras.mixed_precision.LossScaleOptimizer"
            )
        super().__init__(name or optimizer.name)
        self.optimizer = self._track_trackable(optimizer, "optimizer")
        if learning_rate is not None:
            self.learning_rate = learning_rate

    # Steps

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> tf.Operation | tf.Variable:
        """A step.

        Args:
            grads_and_vars: (gradient or None, variable) pairs.
            name: unused.
            experimental_aggregate_gradients: whether gradients of replicas are to be summed.

        Returns:
            `iterations`; in graphs an operation, which `LossScaleOptimizer` asks for.
        """
        iterations = self.optimizer.apply_gradients(
            grads_and_vars,
            name=name,
            skip_gradients_aggregation=not experimental_aggregate_gradients,
        )
        return iterations if tf.executing_eagerly() else tf.no_op()

    @property
    def iterations(self) -> tf.Variable:
        """How many steps were made."""
        return self.optimizer.iterations

    @iterations.setter
    def iterations(self, variable: tf.Variable) -> None:
        self.optimizer.iterations = variable

    @property
    def learning_rate(self) -> Any:
        """The held optimizer's; its schedule, if it has one."""
        return compat.learning_rate_or_schedule(self.optimizer)

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.optimizer.learning_rate = value

    @property
    def lr(self) -> Any:
        """`learning_rate`."""
        return self.learning_rate

    # State

    @property
    def weights(self) -> list:
        """The held optimizer's variables."""
        return self.optimizer.variables

    def variables(self) -> list:
        """The held optimizer's variables."""
        return self.optimizer.variables

    def get_weights(self) -> list:
        """Their values."""
        return [variable.numpy() for variable in self.weights]

    def set_weights(self, weights: Sequence) -> None:
        """Sets them; the optimizer has to be built.

        Args:
            weights: arrays in the order of `weights`.
        """
        self.optimizer.set_weights(weights)

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Makes the variables, as the first step would.

        Args:
            variables: all that will be trained.
        """
        self.optimizer.build(variables)

    def _create_all_weights(self, var_list: Sequence[tf.Variable]) -> None:
        # What Keras calls before it reads the state from an .h5 file.
        self.build(var_list)

    # Config

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments; the learning rate is in the held optimizer's config."""
        return {"name": self._name, "optimizer": keras.optimizers.serialize(self.optimizer)}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Callable] | None = None
    ) -> "Legacy":
        """The reverse of `get_config`.

        Args:
            config: may have a `learning_rate` or `lr`, as Keras' legacy optimizers have it.
            custom_objects: for classes that aren't registered.
        """
        config = dict(config)
        if "lr" in config:
            config["learning_rate"] = config.pop("lr")
        held = config.pop("optimizer")
        if isinstance(held, dict):
            held = keras.optimizers.deserialize(held, custom_objects=custom_objects)
        return cls(held, **config)
