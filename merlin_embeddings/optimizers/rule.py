"""What an optimizer says of its rule; how a step is made is the same for all (`base.py`)."""

from collections.abc import Sequence

import tensorflow as tf

from merlin_embeddings.optimizers.slots import Rows, SlotSpec, Step


class Rule:
    """A rule twice: natively for rows of tables, and in TensorFlow ops for everything else."""

    # Whether the rule scales its step by the length of a row's weights, with its own weight decay
    # inside: kTrustRatio of the native rule.
    trust_ratio: bool = False

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

    def step(self, rows: Rows) -> Step:
        """The rule in TensorFlow ops, for what isn't a table.

        Args:
            rows: gradient, weights and slots; each row once, or a whole dense variable.

        Returns:
            The new weights, and the slots' new values.
        """
        raise NotImplementedError
