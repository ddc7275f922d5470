"""Keras 3's optimizer interface on Keras 2's optimizer."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.compat.keras_2_attributes import CallableList, settable
from merlin_embeddings.compat.saved_state import KEY, SavedState

_ONE_FOR_ALL = tf.VariableAggregation.ONLY_FIRST_REPLICA


class Keras2Optimizer(keras.optimizers.Optimizer):
    """What optimizers of this package find in Keras 3's base, for Keras 2's training loops.

    A subclass has `build` and `apply`, as on Keras 3; `apply_gradients` and `minimize`, which Keras
    2 calls, come to `apply`. Clipping, decay, averages and accumulation are the subclass's.

    Keras 2 reads some attributes of optimizers that have no public name: `_variables` (saved and
    tracked), `_iterations`, `_learning_rate`, `_built`. They mean here what they mean there.

    Args:
        learning_rate: number, schedule, or callable without arguments.
        weight_decay: what each row loses of itself in a step, times the learning rate.
        clipnorm: largest norm of a gradient.
        clipvalue: largest magnitude of an element.
        global_clipnorm: largest norm of all gradients together.
        use_ema: whether averages of the weights are kept.
        ema_momentum: what an average keeps of itself in a step.
        ema_overwrite_frequency: after how many steps averages take the weights' place.
        loss_scale_factor: what the loss is multiplied by.
        gradient_accumulation_steps: of how many batches a step has the mean gradient.
        name: None: the class's, with a number behind it from the second on.
        **kwargs: `jit_compile`, which Keras 2's optimizers have, is left out: what is compiled here
            are native ops.

    Raises:
        ValueError: for what Keras 3 refuses.
    """

    def __init__(
        self,
        learning_rate: Any,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.pop("jit_compile", False):
            warnings.warn(
                f"{type(self).__name__}: jit_compile=True is ignored, its ops are native already",
                stacklevel=2,
            )
        if kwargs:
            raise ValueError(f"Argument(s) not recognized: {kwargs}")
        if sum(clip is not None for clip in (clipnorm, clipvalue, global_clipnorm)) > 1:
            raise ValueError(
                "Only one of `clipnorm`, `clipvalue` and `global_clipnorm` can be set. Received: "
                f"clipnorm={clipnorm}, clipvalue={clipvalue}, global_clipnorm={global_clipnorm}"
            )
        if gradient_accumulation_steps and not gradient_accumulation_steps >= 2:
            raise ValueError(
                "`gradient_accumulation_steps` must be an integer >= 2. Received: "
                f"gradient_accumulation_steps={gradient_accumulation_steps}"
            )
        super().__init__(
            name or _auto_name(type(self).__name__),
            weight_decay=weight_decay,
            clipnorm=clipnorm,
            clipvalue=clipvalue,
            global_clipnorm=global_clipnorm,
            use_ema=use_ema,
            ema_momentum=ema_momentum,
            ema_overwrite_frequency=ema_overwrite_frequency,
            jit_compile=False,
        )
        self._variables: list
        self._saved_state = SavedState()
        self.loss_scale_factor = loss_scale_factor
        self.gradient_accumulation_steps = gradient_accumulation_steps
        if callable(learning_rate):  # a schedule, too
            self._learning_rate = learning_rate
        else:
            self._learning_rate = self._scalar(
                float(learning_rate), keras.backend.floatx(), "learning_rate"
            )
            self._variables.append(self._learning_rate)

    # State

    @property
    def built(self) -> bool:
        """Whether the variables exist."""
        return getattr(self, "_built", False)

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Makes the optimizer know the variables; averages are the subclass's.

        Args:
            variables: all that will be trained.
        """
        del variables
        self._built = True

    def add_variable(
        self,
        shape: Sequence[int],
        initializer: Any = "zeros",
        dtype: Any = None,
        aggregation: str = "none",
        layout: Any = None,
        name: str | None = None,
    ) -> tf.Variable:
        """Makes a variable of the optimizer's state.

        Args:
            shape: of the variable.
            initializer: callable of (shape, dtype), or a Keras name.
            dtype: None: Keras' `floatx`.
            aggregation: "none" or "only_first_replica".
            layout: there is none in Keras 2.
            name: of the variable, after the optimizer's.
        """
        del layout
        initial = keras.initializers.get(initializer)
        dtype = tf.as_dtype(dtype or keras.backend.floatx())
        variable = tf.Variable(
            lambda: initial(shape, dtype=dtype),
            trainable=False,
            dtype=dtype,
            aggregation=getattr(tf.VariableAggregation, aggregation.upper()),
            name=f"{self.name}/{name}",
        )
        self._variables.append(variable)
        return variable

    @property
    def variables(self) -> list:
        """All that is saved: iterations, a learning rate that isn't a schedule, what was added."""
        return CallableList(self._variables)

    def set_weights(self, weights: Sequence) -> None:
        """Sets all `variables`.

        Args:
            weights: arrays in their order.

        Raises:
            ValueError: before the optimizer is built, or when number or shapes are others.
        """
        if not self.built:
            raise ValueError(f"{self.name}: set_weights: build the optimizer first")
        if _shapes(weights) != _shapes(self.variables):
            raise ValueError(
                f"{self.name}: set_weights: the shapes are {_shapes(self.variables)}, got "
                f"{_shapes(weights)}"
            )
        self.load_own_variables({str(index): value for index, value in enumerate(weights)})

    def save_own_variables(self, store: Any) -> None:
        """Writes the state to a weights file, as `load_own_variables` reads it."""
        for index, variable in enumerate(self.variables):
            store[str(index)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Reads the state from a weights file; another number of variables is a warning."""
        variables = self.variables
        if len(store.keys()) != len(variables):
            warnings.warn(
                f"Skipping variable loading for optimizer '{self.name}', because it has "
                f"{len(variables)} variables whereas the saved optimizer has {len(store.keys())} "
                "variables.",
                stacklevel=2,
            )
            return
        for index, variable in enumerate(variables):
            variable.assign(store[str(index)])

    def restore_loaded(self) -> None:
        """Takes over the state from the SavedModel that is being loaded; `build` ends with it."""
        values = self._saved_state.take()
        if not values:
            return
        if _shapes(values) == _shapes(self.variables):
            self.set_weights(values)
        else:
            warnings.warn(
                f"{self.name}: the variables of the SavedModel's optimizer have shapes "
                f"{_shapes(values)}, this model asks for {_shapes(self.variables)}; "
                "the optimizer begins anew",
                stacklevel=2,
            )

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel" and self.built:
            children |= self._saved_state.write(self.variables)
        return children

    # Names that 2.12 has for them.
    def _save_own_variables(self, store: Any) -> None:
        self.save_own_variables(store)

    def _load_own_variables(self, store: Any) -> None:
        self.load_own_variables(store)

    def _create_iteration_variable(self) -> None:
        # Keras' own has no aggregation, and is counted up across replicas.
        self._iterations = self._scalar(0, "int64", "iteration")
        self._variables.append(self._iterations)

    def _scalar(self, value: float, dtype: str, name: str) -> tf.Variable:
        with tf.init_scope():
            return tf.Variable(
                value,
                trainable=False,
                dtype=dtype,
                aggregation=_ONE_FOR_ALL,
                name=f"{self.name}/{name}",
            )

    # Learning rate

    @property
    def learning_rate(self) -> Any:
        """A variable; where there is a schedule or a callable, what it gives for this step."""
        rate = self._learning_rate
        if isinstance(rate, tf.Variable):
            return rate
        scheduled = isinstance(rate, keras.optimizers.schedules.LearningRateSchedule)
        now = rate(self._iterations) if scheduled else rate()
        return settable(now, lambda value: setattr(self, "learning_rate", value))

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        rate = self._learning_rate
        if callable(value):
            if isinstance(rate, tf.Variable):
                self._variables = [v for v in self._variables if v is not rate]
            self._learning_rate = value
        elif isinstance(rate, tf.Variable):
            rate.assign(value)
        else:
            raise TypeError(
                f"{self.name}: the learning rate is what {type(rate).__name__} says and can't be "
                "set; make the optimizer with a number"
            )

    # A step

    def scale_loss(self, loss: Any) -> Any:
        """The loss whose gradients `apply` expects."""
        return loss if self.loss_scale_factor is None else loss * self.loss_scale_factor

    def compute_gradients(
        self, loss: Any, var_list: Any, tape: tf.GradientTape | None = None
    ) -> list[tuple]:
        """Gradients of a loss, which is scaled before.

        Args:
            loss: scalar recorded by `tape`, or a callable.
            var_list: variables, or a callable.
            tape: of a loss that is a tensor.

        Returns:
            (gradient or None, variable) pairs.
        """
        if self.loss_scale_factor is not None and callable(loss):
            unscaled: Callable = loss
            loss = lambda: self.scale_loss(unscaled())  # noqa: E731
        elif self.loss_scale_factor is not None and tape is not None:
            with tape:
                loss = self.scale_loss(loss)
        return super().compute_gradients(loss, var_list, tape)

    # AutoGraph has nothing to do here, and takes zip(strict=True) for an error.
    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple],
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        **kwargs: Any,
    ) -> tf.Variable:
        """A step.

        Args:
            grads_and_vars: (gradient or None, variable) pairs.
            name: unused.
            skip_gradients_aggregation: whether replicas have summed the gradients already.
            **kwargs: `experimental_aggregate_gradients`, the opposite.

        Returns:
            `iterations`.
        """
        del name
        pairs = list(grads_and_vars)
        if not kwargs.pop("experimental_aggregate_gradients", True):
            skip_gradients_aggregation = True
        if pairs:
            gradients, variables = zip(*pairs, strict=True)
            if not self.built:
                # Also where a function is traced.
                with tf.init_scope():
                    self.build(variables)
            self.apply(gradients, variables, skip_gradients_aggregation=skip_gradients_aggregation)
        return self._iterations

    def apply(
        self,
        grads: Sequence,
        trainable_variables: Sequence[tf.Variable] | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> None:
        """A step; the subclass's."""
        raise NotImplementedError

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        """Abstract in Keras 2; a whole step at once is made by `apply`."""
        raise NotImplementedError

    # Config

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, as in Keras 3; a callable learning rate as a number."""
        rate = self._learning_rate
        if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
            rate = keras.optimizers.schedules.serialize(rate)
        else:
            rate = float(self.learning_rate)
        return {
            "name": self.name,
            "learning_rate": rate,
            "weight_decay": self.weight_decay,
            "clipnorm": self.clipnorm,
            "global_clipnorm": self.global_clipnorm,
            "clipvalue": self.clipvalue,
            "use_ema": self.use_ema,
            "ema_momentum": self.ema_momentum,
            "ema_overwrite_frequency": self.ema_overwrite_frequency,
            "loss_scale_factor": self.loss_scale_factor,
            "gradient_accumulation_steps": self.gradient_accumulation_steps,
            **(self._saved_state.config() if self.built else {}),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> Keras2Optimizer:
        """The reverse of `get_config`, for all that Keras loads."""
        config = dict(config)
        name = config.pop(KEY, None)
        # Where merlin-models trains with Horovod, it asks for a multiple of the learning rate so.
        rate = config.pop("lr", None)
        if rate is not None and isinstance(config.get("learning_rate"), dict):
            warnings.warn(
                f"{cls.__name__}: lr={rate} is left out, the learning rate follows a schedule; "
                "scale that",
                stacklevel=2,
            )
        elif rate is not None:
            config["learning_rate"] = rate
        optimizer = super().from_config(config, custom_objects)
        optimizer._saved_state.find(name)
        return optimizer


def _shapes(values: Sequence) -> list[list[int]]:
    return [list(value.shape) for value in values]


def _auto_name(name: str) -> str:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    number = keras.backend.get_uid(snake)
    return snake if number == 1 else f"{snake}_{number - 1}"
