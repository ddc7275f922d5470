"""Poolings that learn what an item of a history weighs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat
from merlin_embeddings.bags import Bags
from merlin_embeddings.config import is_row_count
from merlin_embeddings.layers.history import History
from merlin_embeddings.layers.pooling import Pooling, serializable


class _Scored(Pooling):
    """A pooling that scores each item by a small network of dense layers.

    Args:
        hidden_units: widths of the hidden layers.
        activation: of the hidden layers, the name of a Keras activation.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, hidden_units: Sequence[int], activation: str, **kwargs: Any):
        super().__init__(**kwargs)
        if not all(map(is_row_count, hidden_units)):
            raise ValueError(
                f"{type(self).__name__}: hidden_units={hidden_units!r}; it must be widths of "
                "layers, positive integers."
            )
        self.hidden_units, self.activation = tuple(map(int, hidden_units)), activation
        policy = compat.dtype_policy(self)
        self.scorers = [
            keras.layers.Dense(units, activation, dtype=policy, name=f"hidden_{at}")
            for at, units in enumerate(self.hidden_units)
        ]
        self.scorers.append(keras.layers.Dense(1, dtype=policy, name="score"))
        for layer in self.scorers:
            setattr(self, f"layer:{layer.name}", layer)  # TensorFlow's checkpoints look for these

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        own = {"hidden_units": list(self.hidden_units), "activation": self.activation}
        return {**super().get_config(), **own}

    def _build_scorers(self, inputs: int) -> None:
        if self.built:
            return
        for layer in self.scorers:
            with tf.name_scope(layer.name):
                layer.build((None, inputs))
            inputs = layer.units
        self.built = True

    def _scores(self, features: tf.Tensor) -> tf.Tensor:
        """`[N, F] -> [N]` float32."""
        for layer in self.scorers:
            features = layer(features)
        return tf.cast(tf.squeeze(features, 1), tf.float32)


@serializable
class AttentionPooling(_Scored):
    """A mean by the softmax of learned scores of the items: for retrieval, where nothing is asked.

    The score of an item's vector v is `q . activation(W v + b)` with a learned query q (the
    additive attention of Wu et al., 2019, https://arxiv.org/abs/1907.05576).

    Args:
        hidden_units: widths of W; (32,) is one layer and the query.
        activation: the name of a Keras activation.
        **kwargs: of `keras.layers.Layer`.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> items = me.layers.Embedding(100, 8)
    >>> user = me.layers.UserFromItems(items, pooling=AttentionPooling())
    >>> user(tf.ragged.constant([[1, 2, 3], []])).shape
    TensorShape([2, 8])
    """

    def __init__(
        self, hidden_units: Sequence[int] = (32,), activation: str = "tanh", **kwargs: Any
    ):
        super().__init__(hidden_units, activation, **kwargs)

    def build_for(self, dim: int) -> None:
        """Makes the dense layers."""
        self._build_scorers(dim)

    def weigh(self, history: History) -> Bags:
        """The bags with `exp(score)` as weights, the largest of each history scaled to 1."""
        history = history.without_padding()
        return history.weighted(history.exponentials(self._scores(history.vectors)))


@serializable
class TargetAttention(_Scored):
    """What an item weighs depends on the candidate: for ranking.

    The local activation unit of the Deep Interest Network (Zhou et al., 2018,
    https://arxiv.org/abs/1706.06978): a network scores `[v, q, v - q, v * q]` for each item's
    vector v and the candidate's q, the call argument `query` `[B, D]`. As there, the scores
    themselves are the weights of a sum, so that its length says how strong an interest is; with
    `softmax` it is a mean by their softmax.

    Args:
        hidden_units: widths of the hidden layers.
        activation: of the hidden layers, the name of a Keras activation.
        softmax: whether weights are divided by their sum.
        **kwargs: of `keras.layers.Layer`.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> items = me.layers.Embedding(100, 8)
    >>> user = me.layers.UserFromItems(items, pooling=TargetAttention())
    >>> history, candidate = tf.ragged.constant([[1, 2, 3], []]), tf.constant([4, 5])
    >>> user(history, query=items(candidate)).shape
    TensorShape([2, 8])
    """

    needs_query = True

    def __init__(
        self,
        hidden_units: Sequence[int] = (80, 40),
        activation: str = "sigmoid",
        softmax: bool = False,
        **kwargs: Any,
    ):
        super().__init__(hidden_units, activation, **kwargs)
        self.softmax = softmax
        self.combiner = "mean" if softmax else "sum"

    def build_for(self, dim: int) -> None:
        """Makes the dense layers."""
        self._build_scorers(4 * dim)

    def weigh(self, history: History) -> Bags:
        """The bags with the scores as weights, or `exp(score)` for a softmax."""
        history = history.without_padding()
        assert history.query is not None  # needs_query
        items = history.vectors
        query = tf.gather(tf.cast(history.query, tf.float32), history.bag_of)
        scores = self._scores(tf.concat([items, query, items - query, items * query], 1))
        return history.weighted(history.exponentials(scores) if self.softmax else scores)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "softmax": self.softmax}
