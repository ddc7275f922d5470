"""Several replicas of a model: each has gradients of its own, all make the same step."""

import tensorflow as tf

from merlin_embeddings.optimizers.gradients import Pair, coalesced, with_values


def require_mirrored() -> None:
    """Raises ValueError where there are replicas that `gathered` wasn't made for."""
    strategy = tf.distribute.get_strategy()
    if strategy.num_replicas_in_sync > 1 and not isinstance(
        strategy, tf.distribute.MirroredStrategy
    ):
        raise ValueError(
            "merlin_embeddings.optimizers train replicas under tf.distribute.MirroredStrategy; "
            f"{type(strategy).__name__} has {strategy.num_replicas_in_sync}. Use MirroredStrategy, "
            "a plain Keras optimizer, or train without the strategy"
        )


def gathered(pairs: list[Pair], already: bool = False) -> list[Pair]:
    """The gradients of all replicas together; with one replica, the pairs as they are.

    Dense gradients are summed, rows stand side by side (a row may come from several replicas).
    The loss of each replica is divided by their number already, as Keras does it in `fit`. Every
    replica gets the same tensors and so makes the same step, on its own part of the variables.

    Args:
        pairs: (gradient, variable) of this replica; in each replica the same variables in order.
        already: whether they are gathered.

    Raises:
        ValueError: called across replicas, where a gradient belongs to none.
    """
    if tf.distribute.get_strategy().num_replicas_in_sync == 1:
        return pairs
    replica = tf.distribute.get_replica_context()
    if replica is None:
        raise ValueError(
            "apply() was called across replicas, so it isn't known whose the gradients are; call "
            "it in the step that strategy.run(step) runs in each replica"
        )
    gradients = [coalesced(gradient) for gradient, _ in pairs]
    if not already:
        gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
    # A replica could see through the concatenation to lookups on its own device, and sum their
    # rows in another order than the others: the parts of a variable would drift apart.
    return [
        (with_values(gradient, tf.identity), variable)
        for gradient, (_, variable) in zip(gradients, pairs, strict=True)
    ]
