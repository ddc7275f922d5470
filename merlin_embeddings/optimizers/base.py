"""The optimizer base: rows of tables natively in place, everything else with TensorFlow ops."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from merlin_embeddings import compat, native
from merlin_embeddings.optimizers import (
    accumulation,
    averages,
    constraints,
    plain,
    replicas,
    saving,
)
from merlin_embeddings.optimizers.access import read
from merlin_embeddings.optimizers.clipping import clip
from merlin_embeddings.optimizers.gradients import (
    Gradient,
    Pair,
    as_rows,
    existing,
    is_native,
    rows_of,
    scaled,
    without_overwritten,
)
from merlin_embeddings.optimizers.requirements import require_not_negative, require_positive
from merlin_embeddings.optimizers.rule import Rule
from merlin_embeddings.optimizers.slots import SlotSpec
from merlin_embeddings.optimizers.state import State
from merlin_embeddings.tables import table_of


class SparseOptimizer(Rule, compat.Optimizer):
    """An optimizer for a whole model whose embedding tables are too big to sweep.

    A step reads and writes the rows that its batch looked up, whatever the size of the table:

    - Duplicate rows are summed before the rule sees them, always, as the dense gradient would be.
    - Lazy: rows that a batch doesn't contain aren't touched. Their moments don't decay and their
      weights don't move on old momentum; weight decay, `max_norm` and constraints act on the rows
      seen.
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
            `learning_rate * weight_decay` of itself. Rules with a trust ratio have it inside.
        l2: coupled weight decay: the gradient of each row seen gets `l2 * w`, after clipping, and
            the rule takes it for gradient. With SGD it is the same as `weight_decay`.
        max_norm: the largest Euclidean length of a row: after the step, longer rows among those
            seen are scaled back to it. Variables that aren't tables are left alone.
        clipnorm: largest norm of the gradient of each variable.
        clipvalue: largest magnitude of each element of a gradient.
        global_clipnorm: largest norm of all gradients together.
        use_ema: whether to keep exponential moving averages of the weights, which `fit` puts in
            their place at its end. A row's average is made up for when the row is seen, and is
            exactly that of a sweep after each step; it costs the slots `average` and
            `average_step`, and reading the rows seen before and after the step.
        ema_momentum: what an average keeps of itself in a step.
        ema_overwrite_frequency: every so many steps the averages take the weights' place, too. This
            is a pass over the tables.
        loss_scale_factor: the loss is multiplied by it, the gradients are divided by it.
        gradient_accumulation_steps: one step for the mean gradient of so many batches, with all
            rows that any of them has seen. It costs the slots `gradient_sum` and `gradient_seen`,
            the gradient's values in each batch, and in the last reading one number a row.
        name: of the optimizer.

    Raises:
        ValueError: a negative `weight_decay` or `l2`, a `max_norm` that isn't positive, and
            whatever `keras.optimizers.Optimizer` refuses.
    """

    use_ema: bool
    gradient_accumulation_steps: int | None

    def __init__(
        self,
        learning_rate: Any,
        weight_decay: float | None = None,
        l2: float | None = None,
        max_norm: float | None = None,
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
        if isinstance(learning_rate, int):
            learning_rate = float(learning_rate)
        super().__init__(
            learning_rate,
            weight_decay=weight_decay,
            clipnorm=clipnorm,
            clipvalue=clipvalue,
            global_clipnorm=global_clipnorm,
            use_ema=use_ema,
            ema_momentum=ema_momentum,
            ema_overwrite_frequency=ema_overwrite_frequency,
            loss_scale_factor=loss_scale_factor,
            gradient_accumulation_steps=gradient_accumulation_steps,
            name=name,
            **kwargs,
        )
        require_not_negative(type(self).__name__, weight_decay=weight_decay, l2=l2)
        require_positive(type(self).__name__, max_norm=max_norm)
        self.l2 = l2
        self.max_norm = max_norm
        self._state = State()

    def steps(self) -> tf.Tensor:
        """Scalar int64: how many steps were made; with accumulation, of several batches each."""
        batches = tf.convert_to_tensor(self._iterations)
        return batches // (self.gradient_accumulation_steps or 1)

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
        # Averages and sums as Keras would build them here are swept in each step.
        asked = self.use_ema, self.gradient_accumulation_steps
        self.use_ema, self.gradient_accumulation_steps = False, None
        super().build(variables)
        self.use_ema, self.gradient_accumulation_steps = asked
        specs = self._all_specs()
        for variable in variables:
            self._state.add(variable, [s.new(variable, self.add_variable) for s in specs])
            self._state.attach(variable, specs, self)
        compat.restore_loaded(self)

    # There is nothing for AutoGraph here, and 2.12's takes zip(strict=True) for an error.
    @tf.autograph.experimental.do_not_convert
    def apply(
        self,
        grads: Sequence[Gradient | None],
        trainable_variables: Sequence[tf.Variable] | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> None:
        """Updates the variables.

        Args:
            grads: one for each variable: a tensor, an IndexedSlices, or None.
            trainable_variables: the variables; None: those of `build`, in that order.
            skip_gradients_aggregation: whether replicas have summed their gradients already, as
                Keras 2's loss scaling does.

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
            self._state.attach(variable, self._all_specs(), self)
        with tf.name_scope(self.name):
            pairs = without_overwritten(existing(zip(grads, variables, strict=True)))
            pairs = replicas.gathered(pairs, skip_gradients_aggregation)
            if pairs and self.gradient_accumulation_steps:
                slots = [self._slots_of(variable, accumulation.SPECS) for _, variable in pairs]
                batches, number = self.gradient_accumulation_steps, self._iterations + 1
                flags = [self._flags_if_table(variable) for _, variable in pairs]
                accumulation.accumulate(pairs, slots, flags, batches, number, self._update)
            elif pairs:
                self._update(pairs)
            self._iterations.assign_add(1)

    def finalize_variable_values(self, var_list: Sequence[tf.Variable]) -> None:
        """Puts the averages in the weights' place, as `fit` does at its end.

        Args:
            var_list: the variables; without `use_ema` nothing happens to them.
        """
        if self.use_ema:
            # Outside of a step a mirrored variable is written part by part.
            for parts in map(self._with_average, var_list):
                for part in zip(*map(compat.replicas_of, parts), strict=True):
                    averages.overwrite(part, self.steps(), self.ema_momentum)

    def exclude_from_weight_decay(
        self, var_list: Sequence[tf.Variable] | None = None, var_names: Sequence[str] | None = None
    ) -> None:
        """Excludes variables from `weight_decay` and `l2`; call it before the optimizer is built.

        Args:
            var_list: the variables.
            var_names: patterns; a variable whose name contains one of them is excluded.
        """
        if self.built:
            raise ValueError("exclude_from_weight_decay: call it before the optimizer is built")
        self._state.exclude(var_list, var_names)

    def save_own_variables(self, store: Any) -> None:
        """Writes the state to a weights file; of tables whose rows move, the rows in use.

        Args:
            store: of the file.
        """
        if not saving.save(self._state, self.variables, store):
            super().save_own_variables(store)

    def load_own_variables(self, store: Any) -> None:
        """Reads the state from a weights file; slots of tables go into the memory they have.

        Args:
            store: variables by their number, as `save_own_variables` wrote them; those of tables
                whose rows move have the rows that were in use.

        As with Keras, a file with another number of variables is a warning, not an error: weights
        are often loaded before the optimizer is built.

        Raises:
            ValueError: a slot of a table has another shape in the file.
        """
        variables = self.variables
        numbers = saving.numbers_in(store)
        if len(numbers) != len(variables):
            super().load_own_variables(dict.fromkeys(numbers))
            return
        saving.load(self._state, variables, store, self.name)
        for table in filter(None, map(table_of, self._state.variables)):
            table.changes.lose()

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "l2": self.l2, "max_norm": self.max_norm}

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        # A training step that goes into a SavedModel marks rows, so their flags go with it. They
        # are no state of the optimizer: checkpoints are without them.
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel":
            flags = self._state.all_flags()
            children |= {f"changed:{index}": one for index, one in enumerate(flags)}
        return children

    # One step

    def _update(self, pairs: Sequence[Pair]) -> None:
        """A step, after which rows may go that the lookups so far have kept in place.

        In a graph nothing has to wait for the update: a row that goes starts anew by an op on the
        table, and those are in order.
        """
        self._make_step(pairs)
        for table in filter(None, map(table_of, self._state.variables)):
            table.release()

    def _make_step(self, pairs: Sequence[Pair]) -> None:
        variables = [variable for _, variable in pairs]
        gradients, scale = clip(
            [gradient for gradient, _ in pairs],
            1.0 / (self.loss_scale_factor or 1.0),
            self.clipnorm,
            self.clipvalue,
            self.global_clipnorm,
        )
        learning_rate = tf.cast(tf.convert_to_tensor(self.learning_rate), tf.float32)
        pairs = [
            (as_rows(gradient, variable), variable)
            for gradient, variable in zip(gradients, variables, strict=True)
        ]
        before = [read(v, rows_of(g)) for g, v in pairs] if self.use_ema else []
        native_pairs = [pair for pair in pairs if is_native(*pair)]
        for gradient, variable in pairs:
            if not is_native(gradient, variable):
                plain.update(
                    scaled(gradient, scale),
                    variable,
                    self._slots_of(variable),
                    self.step,
                    learning_rate,
                    self._shared(variable),
                )
        self._update_natively(native_pairs, scale, learning_rate)
        for gradient, variable in native_pairs:
            constraints.constrain_rows(variable, gradient.indices)
        if self.use_ema:
            self._average(pairs, before)

    def _average(self, pairs: Sequence[Pair], before: Sequence[tf.Tensor]) -> None:
        now = self.steps() + 1
        for (gradient, variable), own in zip(pairs, before, strict=True):
            slots = self._slots_of(variable, averages.SPECS)
            averages.follow(variable, slots, rows_of(gradient), own, now, self.ema_momentum)
        if not self.ema_overwrite_frequency:
            return

        def overwrite() -> None:
            for variable in self._state.variables:
                averages.overwrite(self._with_average(variable), now, self.ema_momentum)

        tf.cond(now % self.ema_overwrite_frequency == 0, overwrite, lambda: None)

    def _with_average(self, variable: tf.Variable) -> list[tf.Variable]:
        """A variable, the slots of its average and, of a table, what marks rows as written."""
        flags = self._flags_if_table(variable)
        slots = self._slots_of(variable, averages.SPECS)
        return [variable, *slots, *([] if flags is None else [flags])]

    def _flags_if_table(self, variable: tf.Variable) -> tf.Variable | None:
        return None if table_of(variable) is None else self._state.flags_of(variable)

    def _update_natively(
        self, pairs: Sequence[Pair], scale: tf.Tensor | float, learning_rate: tf.Tensor
    ) -> None:
        # One call for all tables, or two when some of them are excluded from weight decay.
        calls: dict[plain.Shared, list[native.TableUpdate]] = {}
        for gradient, variable in pairs:
            update = native.TableUpdate(
                variable=compat.raw_variable(variable),
                slots=[compat.raw_variable(slot) for slot in self._slots_of(variable)],
                changed=self._state.flags_of(variable),
                gradient=gradient,
            )
            calls.setdefault(self._shared(variable), []).append(update)
        for shared, updates in calls.items():
            common = [learning_rate, shared.weight_decay, scale, shared.l2, shared.max_norm]
            hyper = [*common, *self.hyper(learning_rate)]
            vector = tf.stack([tf.cast(value, tf.float32) for value in hyper])
            native.update(self.rule, vector, updates)

    # Parts

    def _all_specs(self) -> list[SlotSpec]:
        """What the rule keeps, and what is kept beside it."""
        beside = list(averages.SPECS) if self.use_ema else []
        if self.gradient_accumulation_steps:
            beside += accumulation.SPECS
        return [*self.slot_specs(), *beside]

    def _slots_of(
        self, variable: tf.Variable, specs: Sequence[SlotSpec] | None = None
    ) -> list[tf.Variable]:
        """The slots of a variable for these specs; None: for the rule's."""
        wanted = self.slot_specs() if specs is None else specs
        pairs = zip(self._all_specs(), self._state.slots_of(variable), strict=True)
        return [slot for spec, slot in pairs if spec in wanted]

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
        self._state.require_known(variables, self.name)
        return variables

    def _shared(self, variable: tf.Variable) -> plain.Shared:
        excluded = self._state.is_excluded(variable)
        return plain.Shared(
            weight_decay=0.0 if excluded else float(self.weight_decay or 0.0),
            l2=0.0 if excluded else float(self.l2 or 0.0),
            max_norm=float(self.max_norm or 0.0),
            trust_ratio=self.trust_ratio,
        )
