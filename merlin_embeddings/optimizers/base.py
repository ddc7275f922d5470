"""The optimizer base: rows of tables natively in place, everything else with TensorFlow ops."""

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat, native
from merlin_embeddings.optimizers import constraints, plain, replicas
from merlin_embeddings.optimizers.clipping import clip
from merlin_embeddings.optimizers.gradients import (
    Gradient,
    Pair,
    existing,
    scaled,
    without_overwritten,
)
from merlin_embeddings.optimizers.requirements import refuse_sweeps, require_keras_3
from merlin_embeddings.optimizers.slots import SlotSpec, Step, slot_dtype
from merlin_embeddings.tables import overwrite, table_of


class _State:
    """What an optimizer knows of its variables; out of sight of Keras' attribute tracking."""

    def __init__(self) -> None:
        self.variables: list = []
        self.slots: dict = {}
        self.flags: dict = {}
        self.undecayed: set = set()
        self.undecayed_names: re.Pattern | None = None


class SparseOptimizer(keras.optimizers.Optimizer):
    """An optimizer for a whole model whose embedding tables are too big to sweep.

    A step reads and writes the rows that its batch looked up, whatever the size of the table:

    - Duplicate rows are summed before the rule sees them, always, as the dense gradient would be.
    - Lazy: rows that a batch doesn't contain aren't touched. Their moments don't decay and their
      weights don't move on old momentum; weight decay and constraints act on the rows seen.
    - Everything else (`Dense` kernels, biases) gets the same rule with every element seen.
    - `keras.layers.Embedding` tables are treated as ours: rows seen, duplicates summed.
    - Under `tf.distribute.MirroredStrategy` the rows of all replicas are gathered first, so that
      sums, clipping and the rule are those of one device with the whole batch.

    Gradients that reach the optimizer as the lookup made them are computed inside the one native
    op that updates all tables; `loss_scale_factor` keeps it so. After clipping, loss scaling by
    `keras.optimizers.LossScaleOptimizer` or any other change, the changed rows are used. The
    result is the same.

    Args:
        learning_rate: a float, a `keras.optimizers.schedules.LearningRateSchedule`, or a callable
            without arguments.
        weight_decay: decoupled (Loshchilov and Hutter, 2019): each row seen first loses
            `learning_rate * weight_decay` of itself.
        clipnorm: largest norm of the gradient of each variable.
        clipvalue: largest magnitude of each element of a gradient.
        global_clipnorm: largest norm of all gradients together.
        use_ema, gradient_accumulation_steps: refused, since both sweep the tables each step.
            `Split(dense=...)` has them for the rest of the model.
        ema_momentum, ema_overwrite_frequency: without meaning here; Keras' signature has them.
        loss_scale_factor: the loss is multiplied by it, the gradients are divided by it.
        name: of the optimizer.

    Raises:
        ValueError: for `use_ema` and `gradient_accumulation_steps`, and whatever
            `keras.optimizers.Optimizer` refuses.
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
        require_keras_3(type(self).__name__)
        refuse_sweeps(type(self).__name__, use_ema, gradient_accumulation_steps)
        if isinstance(learning_rate, int):
            learning_rate = float(learning_rate)
        super().__init__(
            learning_rate,
            weight_decay=weight_decay,
            clipnorm=clipnorm,
            clipvalue=clipvalue,
            global_clipnorm=global_clipnorm,
            ema_momentum=ema_momentum,
            ema_overwrite_frequency=ema_overwrite_frequency,
            loss_scale_factor=loss_scale_factor,
            name=name,
            **kwargs,
        )
        self._state = _State()

    # What a rule says

    @property
    def rule(self) -> str:
        """The rule's name in the native library."""
        raise NotImplementedError

    def slot_specs(self) -> Sequence[SlotSpec]:
        """The slots of the rule, in the order in which the native rule takes them."""
        raise NotImplementedError

    def hyper(self, learning_rate: tf.Tensor) -> Sequence[tf.Tensor | float]:
        """The rule's own hyper-parameters, in the native rule's order.

        Args:
            learning_rate: scalar float32, of this step.
        """
        raise NotImplementedError

    def step(
        self, gradient: tf.Tensor, slots: Sequence[tf.Tensor], learning_rate: tf.Tensor
    ) -> Step:
        """The rule in TensorFlow ops, for what isn't a table.

        Args:
            gradient: [N, ...], each row once, or a whole dense gradient.
            slots: the slots' values of the same rows.
            learning_rate: scalar of the gradient's dtype.

        Returns:
            What to subtract from the weights, and the slots' new values.
        """
        raise NotImplementedError

    # Keras' optimizer interface

    def build(self, variables: Sequence[tf.Variable]) -> None:
        """Creates the slots of all variables, and attaches those of tables to their table.

        Args:
            variables: the model's trainable variables.

        Raises:
            ValueError: under a distribution strategy with several replicas other than
                `tf.distribute.MirroredStrategy`, or when a constraint of an embedding table spans
                several rows.
        """
        if self.built:
            return
        replicas.require_mirrored()
        for variable in variables:
            constraints.require_rowwise(variable)
        super().build(variables)
        state = self._state
        state.variables = list(variables)
        for variable in variables:
            state.slots[_key(variable)] = [
                self._add_slot(variable, spec) for spec in self.slot_specs()
            ]
            self._attach(variable)

    def apply(
        self,
        grads: Sequence[Gradient | None],
        trainable_variables: Sequence[tf.Variable] | None = None,
    ) -> None:
        """Updates the variables.

        Args:
            grads: one for each variable: a tensor, an IndexedSlices, or None.
            trainable_variables: the variables; None: those of `build`, in that order.

        Raises:
            ValueError: no gradient at all, a variable that `build` hasn't seen, or a call outside
                of `strategy.run` where there are several replicas.
        """
        grads = list(grads)
        if not grads:
            return
        variables = self._known_variables(grads, trainable_variables)
        for variable in variables:
            # Another optimizer may have served the table in between.
            self._attach(variable)
        with tf.name_scope(self.name):
            pairs = without_overwritten(existing(zip(grads, variables, strict=True)))
            pairs = replicas.gathered(pairs)
            if pairs:
                self._update(pairs)
            self.iterations.assign_add(1)

    def exclude_from_weight_decay(
        self, var_list: Sequence[tf.Variable] | None = None, var_names: Sequence[str] | None = None
    ) -> None:
        """Excludes variables from weight decay; call it before the optimizer is built.

        Args:
            var_list: the variables.
            var_names: patterns; a variable whose name contains one of them is excluded.
        """
        if self.built:
            raise ValueError("exclude_from_weight_decay: call it before the optimizer is built")
        self._state.undecayed = {_key(variable) for variable in var_list or ()}
        self._state.undecayed_names = re.compile("|".join(var_names)) if var_names else None

    def load_own_variables(self, store: Any) -> None:
        """Reads the state from a weights file; slots of tables go into the memory they have.

        Args:
            store: variables by their number, as `save_own_variables` wrote them.

        As with Keras, a file with another number of variables is a warning, not an error: weights
        are often loaded before the optimizer is built.

        Raises:
            ValueError: a slot of a table has another shape in the file.
        """
        variables = self.variables
        if len(store.keys()) != len(variables):
            super().load_own_variables(store)
            return
        of_tables = self._slots_of_tables()
        for index, variable in enumerate(variables):
            values = store[str(index)]
            if _key(variable) in of_tables:
                overwrite(variable, values, f"{self.name}: slot '{variable.name}'")
            else:
                variable.assign(values)
        for table in filter(None, map(table_of, self._state.variables)):
            table.changes.lose()

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        # A training step that goes into a SavedModel marks rows, so their flags go with it. They
        # are no state of the optimizer: checkpoints are without them.
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel":
            flags = self._state.flags.values()
            children |= {f"changed:{index}": one for index, one in enumerate(flags)}
        return children

    # One step

    def _update(self, pairs: Sequence[Pair]) -> None:
        variables = [variable for _, variable in pairs]
        gradients, scale = clip(
            [gradient for gradient, _ in pairs],
            1.0 / (self.loss_scale_factor or 1.0),
            self.clipnorm,
            self.clipvalue,
            self.global_clipnorm,
        )
        learning_rate = tf.cast(tf.convert_to_tensor(self.learning_rate), tf.float32)
        native_pairs = []
        for gradient, variable in zip(gradients, variables, strict=True):
            gradient = self._rows_of_tables(gradient, variable)
            if _is_native(gradient, variable):
                native_pairs.append((gradient, variable))
            else:
                plain.update(
                    scaled(gradient, scale),
                    variable,
                    self._state.slots[_key(variable)],
                    self.step,
                    learning_rate,
                    self._decay_of(variable),
                )
        self._update_natively(native_pairs, scale, learning_rate)
        for gradient, variable in native_pairs:
            constraints.constrain_rows(variable, gradient.indices)

    def _rows_of_tables(self, gradient: Gradient, variable: tf.Variable) -> Gradient:
        # A table that also serves as a dense kernel (tied softmax): every row was seen.
        if isinstance(gradient, tf.IndexedSlices) or table_of(variable) is None:
            return gradient
        rows = tf.range(variable.shape[0], dtype=tf.int64)
        return tf.IndexedSlices(tf.cast(gradient, tf.float32), rows, tf.shape(gradient))

    def _update_natively(
        self, pairs: Sequence[Pair], scale: tf.Tensor | float, learning_rate: tf.Tensor
    ) -> None:
        # One call for all tables, or two when some of them are excluded from weight decay.
        by_decay: dict[float, list[native.TableUpdate]] = {}
        for gradient, variable in pairs:
            update = native.TableUpdate(
                variable=compat.raw_variable(variable),
                slots=[compat.raw_variable(slot) for slot in self._state.slots[_key(variable)]],
                changed=self._flags(variable),
                gradient=gradient,
            )
            by_decay.setdefault(self._decay_of(variable), []).append(update)
        for decay, updates in by_decay.items():
            hyper = [learning_rate, decay, scale, *self.hyper(learning_rate)]
            vector = tf.stack([tf.cast(value, tf.float32) for value in hyper])
            native.update(self.rule, vector, updates)

    # Parts

    def _add_slot(self, variable: tf.Variable, spec: SlotSpec):
        owner = getattr(variable, "path", variable.name).replace("/", "_").replace(":", "_")
        name = f"{owner}_{spec.name}"
        arguments = dict(
            shape=spec.shape(variable),
            initializer=spec.initializer(variable, name),
            dtype=slot_dtype(variable),
            name=name,
        )
        if table_of(variable) is None:
            return self.add_variable(**arguments)
        with compat.on_host():
            return self.add_variable(**arguments)

    def _attach(self, variable: tf.Variable) -> None:
        table = table_of(variable)
        if table is None:
            return
        for spec, slot in zip(self.slot_specs(), self._state.slots[_key(variable)], strict=True):
            table.attach(spec.name, slot, spec.fill, owner=self)
        self._state.flags[_key(variable)] = table.changes.start()

    def _slots_of_tables(self) -> set:
        return {
            _key(slot)
            for variable in self._state.variables
            if table_of(variable) is not None
            for slot in self._state.slots[_key(variable)]
        }

    def _flags(self, variable: tf.Variable) -> tf.Variable:
        """What the native update marks rows in; nobody reads it for variables without a table."""
        flags = self._state.flags
        if _key(variable) not in flags:
            with tf.init_scope():
                flags[_key(variable)] = tf.Variable(
                    tf.zeros([variable.shape[0]], tf.uint8), trainable=False
                )
        return flags[_key(variable)]

    def _known_variables(
        self, grads: Sequence[Gradient | None], variables: Sequence[tf.Variable] | None
    ) -> list:
        if variables is None:
            if not self.built:
                raise ValueError(
                    f"{self.name}: pass the variables with the first gradients, or call "
                    "build(variables) before"
                )
            variables = self._state.variables
        variables = list(variables)
        if len(variables) != len(grads):
            raise ValueError(f"{self.name}: {len(grads)} gradients for {len(variables)} variables")
        if not self.built:
            self.build(variables)
        for variable in variables:
            if _key(variable) not in self._state.slots:
                raise ValueError(
                    f"{self.name}: unknown variable '{variable.name}'; an optimizer updates the "
                    "variables that it was built with. Compile the model again with a new one"
                )
        return variables

    def _decay_of(self, variable: tf.Variable) -> float:
        names = self._state.undecayed_names
        excluded = _key(variable) in self._state.undecayed or (
            names is not None and names.search(variable.name) is not None
        )
        return 0.0 if excluded else float(self.weight_decay or 0.0)


def _key(variable: tf.Variable):
    # Of a mirrored variable the first part, whichever replica asks.
    return compat.replicas_of(variable)[0].ref()


def _is_native(gradient: Gradient, variable: tf.Variable) -> bool:
    if not isinstance(gradient, tf.IndexedSlices) or len(variable.shape) != 2:
        return False
    return table_of(variable) is not None or (
        tf.as_dtype(variable.dtype) == tf.float32 and gradient.values.dtype == tf.float32
    )
