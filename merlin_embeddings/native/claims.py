"""Gradients of tables whose rows move: only an optimizer that keeps to the rules may use them."""

from __future__ import annotations

import tensorflow as tf

from merlin_embeddings.native.attached import Attached
from merlin_embeddings.native.library import ops

_WAY_OUT = (
    "the table's rows move from id to id, and no optimizer of merlin_embeddings serves it: a plain "
    "Keras optimizer would train rows with the state of ids that had them before. Compile with an "
    "optimizer of merlin_embeddings.optimizers, or keep yours for the rest of the model: "
    "optimizers.Split(dense=yours, embeddings=optimizers.Adagrad(0.01)). A step of your own that "
    "takes gradients before its optimizer of merlin_embeddings is built calls "
    "optimizer.build(variables) first"
)

# Of `Attached.name`: their gradients were asked for eagerly when nobody had a claim.
_unclaimed: set[str] = set()


def require_claimed(gradient: tf.Tensor, attached: str, name: str) -> tf.Tensor:
    """Hands a gradient on to an optimizer that may use it.

    In a graph an optimizer is built, and has its claim, before a step runs. Eagerly the first
    gradient is there before the optimizer: that it had no claim is told by `require_served`.

    Args:
        gradient: of any shape.
        attached: the name of the table's `Attached`.
        name: whose vectors they were, for messages.

    Returns:
        The gradient.

    Raises:
        tf.errors.InvalidArgumentError: in a graph, when it runs: nobody has a claim.
    """
    if not tf.executing_eagerly():
        message = f"{name}: {_WAY_OUT}"
        return ops.merlin_require_claimed(values=gradient, attached=attached, message=message)
    if not ops.merlin_claimed(attached=attached):
        _unclaimed.add(attached)
    return gradient


def require_served(attached: Attached, name: str) -> None:
    """Checks before an eager training step that the one before had an optimizer which may be.

    Args:
        attached: of the table.
        name: the table's, for messages.

    Raises:
        ValueError: a gradient was taken, and still nobody has a claim.
    """
    if attached.name not in _unclaimed or not tf.executing_eagerly():
        return
    if not attached.claimed():
        raise ValueError(f"table '{name}': {_WAY_OUT}")
    _unclaimed.discard(attached.name)
