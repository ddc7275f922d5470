"""One optimizer for the tables, another for the rest of the model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat
from merlin_embeddings.optimizers.base import SparseOptimizer
from merlin_embeddings.optimizers.gradients import Gradient, normalised, scaled
from merlin_embeddings.tables import MovingTable, table_of

# Arguments of optimizers that each part has for itself.
_OF_PARTS = {
    "learning_rate",
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "ema_momentum",
    "ema_overwrite_frequency",
    "gradient_accumulation_steps",
}


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Split(compat.Optimizer):
    """Mixes optimizers: tables, single tables, everything else.

    Each part sees its own variables only: clipping by global norm, for one, is over the
    gradients of that part. Each part has its own learning rate; setting that of the whole
    (`learning_rate`) keeps their ratio.

        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> split = me.optimizers.Split(
        ...     dense=tf.keras.optimizers.Adam(1e-3),
        ...     embeddings=me.optimizers.RowwiseAdagrad(0.02),
        ...     overrides={"item": me.optimizers.Adam(1e-3)},
        ... )

    Args:
        dense: a Keras optimizer for all variables that aren't tables of this package. Everything
            that Keras has works here, exponential moving averages and gradient accumulation too.
        embeddings: the optimizer for tables. A Keras optimizer is exact on a table that is
            looked up once a step, and pays for the table's whole size if its rule has slots.
        overrides: optimizers for single tables by the table's name.
        loss_scale_factor: the loss is multiplied by it, the gradients are divided by it.
        name: of the optimizer.

    Raises:
        ValueError: one optimizer given twice, a part with its own `loss_scale_factor` or that is
            built already; when the model is built, an override for a table that doesn't exist.
        TypeError: a part that is no Keras optimizer.
    """

    def __init__(
        self,
        dense: keras.optimizers.Optimizer,
        embeddings: keras.optimizers.Optimizer,
        overrides: Mapping[str, keras.optimizers.Optimizer] | None = None,
        loss_scale_factor: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate=0.0, loss_scale_factor=loss_scale_factor, name=name)
        self.dense = dense
        self.embeddings = embeddings
        self.overrides = dict(overrides or {})
        parts = dict(self._parts())
        for label, part in parts.items():
            _require_part(label, part)
        if len({id(part) for part in parts.values()}) < len(parts):
            raise ValueError(
                "Split: one optimizer can't serve two parts, each has a state of its own; "
                "give each part a new one"
            )

    @property
    def learning_rate(self) -> Any:
        """That of `dense`. Setting it sets those of the other parts in the same ratio.

        So callbacks that change the learning rate of a model (`LearningRateScheduler`,
        `ReduceLROnPlateau`) change all parts alike. Each part's own can be set at the part.
        """
        rate = self.dense.learning_rate
        return compat.settable(rate, lambda value: setattr(self, "learning_rate", value))

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        rates = {label: part.learning_rate for label, part in self._parts()}
        # Where a part follows a schedule it has a number here, for this step.
        scheduled = [n for n, part in self._parts() if not compat.has_fixed_learning_rate(part)]
        before = float(rates["dense"])
        if callable(value) or scheduled or not before:
            raise ValueError(
                "Split: setting the learning rate sets those of all parts in the ratio they have, "
                f"which takes numbers other than 0; got {value!r}, dense has {before}, schedules "
                f"are at {scheduled or 'none'}. Set split.dense.learning_rate, "
                "split.embeddings.learning_rate or split.overrides[table].learning_rate"
            )
        others = {label: float(rate) * float(value) / before for label, rate in rates.items()}
        for label, part in self._parts():
            part.learning_rate = float(value) if label == "dense" else others[label]

    @property
    def variables(self) -> list[tf.Variable]:
        of_parts = [v for _, part in self._parts() for v in part.variables]
        return compat.callable_list([*super().variables, *of_parts])

    def build(self, variables: Sequence[tf.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._require_tables(variables)
        self._require_optimizers_for_moving(variables)
        for label, positions in self._positions(variables).items():
            dict(self._parts())[label].build([variables[i] for i in positions])
        compat.restore_loaded(self)

    # There is nothing for AutoGraph here, and 2.12's takes zip(strict=True) for an error.
    @tf.autograph.experimental.do_not_convert
    def apply(
        self,
        grads: Sequence[Gradient | None],
        trainable_variables: Sequence[tf.Variable] | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> None:
        grads = list(grads)
        if not grads:
            return
        if trainable_variables is None:
            raise ValueError(f"{self.name}: pass the variables with the gradients")
        variables = list(trainable_variables)
        if not self.built:
            self.build(variables)
        if self.loss_scale_factor is not None:
            scale = 1.0 / self.loss_scale_factor
            grads = [g if g is None else scaled(normalised(g), scale) for g in grads]
        if all(gradient is None for gradient in grads):
            raise ValueError("No gradients provided for any variable.")
        parts = dict(self._parts())
        for label, positions in self._positions(variables).items():
            part_grads = [grads[i] for i in positions]
            # A part without any gradient sits this step out; Keras' optimizers would raise.
            if any(gradient is not None for gradient in part_grads):
                part_variables = [variables[i] for i in positions]
                compat.apply_gradients(
                    parts[label], part_grads, part_variables, skip_gradients_aggregation
                )
        self.iterations.assign_add(1)

    def exclude_from_weight_decay(
        self, var_list: Sequence[tf.Variable] | None = None, var_names: Sequence[str] | None = None
    ) -> None:
        for _, part in self._parts():
            part.exclude_from_weight_decay(var_list=var_list, var_names=var_names)

    def finalize_variable_values(self, var_list: Sequence[tf.Variable]) -> None:
        variables = list(var_list)
        parts = dict(self._parts())
        for label, positions in self._positions(variables).items():
            parts[label].finalize_variable_values([variables[i] for i in positions])

    def set_weights(self, weights: Sequence) -> None:
        """Sets all `variables`, those of the parts too.

        Args:
            weights: arrays in their order.
        """
        rest = iter(weights)

        def assign(variables: Sequence) -> None:
            for variable in variables:
                variable.assign(next(rest))

        assign(super().variables)
        for _, part in self._parts():
            if compat.is_built(part):  # it knows best how to write what it has for tables
                part.set_weights([next(rest) for _ in part.variables])
            else:
                assign(part.variables)

    def save_own_variables(self, store: Any) -> None:
        # The parts are saved by themselves, as Keras does with whatever an object holds.
        for index, variable in enumerate(super().variables):
            store[str(index)] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        for index, variable in enumerate(super().variables):
            variable.assign(store[str(index)])

    def get_config(self) -> dict[str, Any]:
        serialize = keras.optimizers.serialize
        own = super().get_config()
        return {
            **{name: value for name, value in own.items() if name not in _OF_PARTS},
            "dense": serialize(self.dense),
            "embeddings": serialize(self.embeddings),
            "overrides": {name: serialize(part) for name, part in self.overrides.items()},
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "Split":
        def deserialize(part: Any):
            return keras.optimizers.deserialize(part, custom_objects=custom_objects)

        overrides = config.get("overrides") or {}
        parts = {
            "dense": deserialize(config["dense"]),
            "embeddings": deserialize(config["embeddings"]),
            "overrides": {name: deserialize(part) for name, part in overrides.items()},
        }
        return super().from_config({**config, **parts}, custom_objects)

    def _parts(self) -> Iterator[tuple[str, keras.optimizers.Optimizer]]:
        yield "dense", self.dense
        yield "embeddings", self.embeddings
        for name, part in sorted(self.overrides.items()):
            yield f"overrides['{name}']", part

    def _positions(self, variables: Sequence[tf.Variable]) -> Mapping[str, list[int]]:
        """Which of the variables each part has; parts without any are left out."""
        positions: dict[str, list[int]] = {}
        for index, variable in enumerate(variables):
            table = table_of(variable)
            if table is None:
                label = "dense"
            elif table.name in self.overrides:
                label = f"overrides['{table.name}']"
            else:
                label = "embeddings"
            positions.setdefault(label, []).append(index)
        return positions

    def _require_tables(self, variables: Sequence[tf.Variable]) -> None:
        tables = {table.name for table in map(table_of, variables) if table is not None}
        for name in self.overrides:
            if name not in tables:
                raise ValueError(
                    f"Split: overrides name the table '{name}', but the trainable tables of this "
                    f"model are {sorted(tables)}"
                )

    def _require_optimizers_for_moving(self, variables: Sequence[tf.Variable]) -> None:
        parts = dict(self._parts())
        for label, positions in self._positions(variables).items():
            part = parts[label]
            if isinstance(part, SparseOptimizer):
                continue
            moving = [
                table.name
                for table in (table_of(variables[i]) for i in positions)
                if isinstance(table, MovingTable)
            ]
            if moving:
                raise ValueError(
                    f"Split: {label} is {type(part).__name__}, which can't train tables whose rows "
                    f"move from id to id ({moving}): it would keep the state of ids that are gone; "
                    "give an optimizer of merlin_embeddings.optimizers"
                )


def _require_part(label: str, part: Any) -> None:
    if not isinstance(part, keras.optimizers.Optimizer):
        raise TypeError(f"Split: {label} must be a Keras optimizer object, got {part!r}")
    scale = getattr(part, "loss_scale_factor", None)
    if scale is not None:
        raise ValueError(
            f"Split: {label} has loss_scale_factor={scale}, but the loss is one "
            "for all parts; give Split(loss_scale_factor=...)"
        )
    if compat.is_built(part):
        raise ValueError(f"Split: {label} was built for another model; give a new optimizer")
