"""Slots: what a rule keeps for each weight or each row."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from merlin_embeddings import native

# What a rule's step gives: what to subtract from the weights, and the slots' new values.
Step: TypeAlias = tuple[tf.Tensor, Sequence[tf.Tensor]]


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
