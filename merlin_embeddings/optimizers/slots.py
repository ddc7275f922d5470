"""Slots: what a rule keeps for each weight or each row; and what a step of it starts from."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from merlin_embeddings import compat, native
from merlin_embeddings.tables import table_of

# What a rule's step gives: the new weights, and the slots' new values.
Step: TypeAlias = tuple[tf.Tensor, Sequence[tf.Tensor]]


class Rows(NamedTuple):
    """What a rule's step starts from: rows of a variable, each once, or the whole of it.

    Attributes:
        gradient: [N, ...], what `l2` adds to it included.
        weights: [N, ...] in the gradient's dtype; weight decay is done, unless the rule has a
            trust ratio.
        slots: values of the same rows, in the order of `slot_specs`.
        learning_rate: scalar of the gradient's dtype.
        weight_decay: of this variable, for rules with a trust ratio.
        whole: whether this is a dense variable with all that it has, rather than rows of a table.
    """

    gradient: tf.Tensor
    weights: tf.Tensor
    slots: Sequence[tf.Tensor]
    learning_rate: tf.Tensor
    weight_decay: float
    whole: bool

    def mean_square(self) -> tf.Tensor:
        """[N], of each row's gradient; for variables of rank 0 and 1, the squares themselves."""
        squares = self.gradient * self.gradient
        return tf.reduce_mean(squares, self._columns) if self._columns else squares

    def across(self, per_row: tf.Tensor) -> tf.Tensor:
        """[N] with axes of size 1 for the columns, to go with the weights."""
        for _ in self._columns:
            per_row = per_row[..., tf.newaxis]
        return per_row

    def norm(self, values: tf.Tensor) -> tf.Tensor:
        """The length of each row of `values`, or of all of a dense variable; axes are kept."""
        return length(values, None if self.whole else self._columns)

    @property
    def _columns(self) -> list[int]:
        return list(range(1, self.gradient.shape.rank))


def length(values: tf.Tensor, axes: Sequence[int] | None) -> tf.Tensor:
    """The root of the sum of squares over some axes, which are kept with size 1; None: over all."""
    return tf.sqrt(tf.reduce_sum(values * values, axes, keepdims=True))


class SlotSpec(NamedTuple):
    """A slot that a rule needs for each variable.

    Attributes:
        name: as it appears in Entries.
        fill: the starting value.
        per_row: one value for each row (first axis) in place of one for each element; variables of
            rank 0 and 1 have one for each element either way.
    """

    name: str
    fill: float = 0.0
    per_row: bool = False

    def new(self, variable: tf.Variable, add_variable: Callable) -> tf.Variable:
        """Makes the slot of a variable by the optimizer's `add_variable`, beside its table."""
        owner = getattr(variable, "path", variable.name).replace("/", "_").replace(":", "_")
        name = f"{owner}_{self.name}"
        arguments = dict(
            shape=self.shape(variable),
            initializer=self.initializer(variable, name),
            dtype=slot_dtype(variable),
            name=name,
        )
        if table_of(variable) is None:
            return add_variable(**arguments)
        with compat.on_host():
            return add_variable(**arguments)

    def shape(self, variable: tf.Variable) -> tuple[int, ...]:
        """The slot's shape for a variable."""
        shape = tuple(variable.shape)
        return shape[:1] if self.per_row else shape

    def initializer(self, variable: tf.Variable, name: str) -> Callable:
        """Fills a slot; a slot of zeros on a table takes no memory before its rows are seen.

        Args:
            variable: the one that the slot is for.
            name: for error messages.

        Returns:
            What `add_variable` takes as initializer.
        """

        def initial_values(shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
            if len(variable.shape) != 2 or tf.as_dtype(dtype) != tf.float32:
                return tf.fill(shape, tf.cast(self.fill, dtype))
            dim = 1 if self.per_row else shape[1]
            values = native.initial_table(
                shape[0], dim, tf.as_dtype(dtype), "constant", (self.fill, 0.0), 0, name
            )
            return tf.reshape(values, shape)

        return initial_values


def slot_dtype(variable: tf.Variable) -> str:
    """Slots and sums are float32, also of variables that are stored in half of it."""
    return "float64" if tf.as_dtype(variable.dtype) == tf.float64 else "float32"
