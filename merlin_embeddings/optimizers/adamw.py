"""AdamW: Adam with decoupled weight decay."""

from typing import Any

from tensorflow import keras

from merlin_embeddings.optimizers.adam import Adam


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019), on the rows seen.

        w -= learning_rate * weight_decay * w
        and then as in `Adam`

    `Adam(weight_decay=...)` is the same; this has the name, the arguments and the defaults of
    `keras.optimizers.AdamW`. Lazy: a row that isn't seen neither decays nor moves. A row seen in
    one step of n loses 1/n of what Keras' sweep would take from it.

    Args:
        learning_rate: as in `SparseOptimizer`.
        weight_decay: what a row seen loses of itself, times the learning rate.
        beta_1: decay of the first moment, in [0, 1).
        beta_2: decay of the second moment, in [0, 1).
        epsilon: beside the root.
        amsgrad: as in `Adam`.
        **kwargs: of `SparseOptimizer`.

    Raises:
        ValueError: a beta out of range, or no weight decay.

    Example:
        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> table = tf.keras.Variable([[1.0], [2.0]])
        >>> rows = tf.IndexedSlices([[3.0]], [1], [2, 1])
        >>> me.optimizers.AdamW(0.5, weight_decay=0.1).apply([rows], [table])
        >>> print(table.numpy().round(4).ravel())        # row 1: 2 - 2 * 0.5 * 0.1 - 0.5
        [1.  1.4]
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **kwargs: Any,
    ) -> None:
        if weight_decay is None:
            raise ValueError("AdamW: weight_decay must be a number, got None; use Adam without it")
        super().__init__(
            learning_rate, beta_1, beta_2, epsilon, amsgrad, weight_decay=weight_decay, **kwargs
        )
