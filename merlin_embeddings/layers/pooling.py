"""How the vectors of a history become one: what each item weighs."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat
from merlin_embeddings.bags import Bags
from merlin_embeddings.layers.history import History

serializable = keras.utils.register_keras_serializable(package="merlin_embeddings")


class Pooling(keras.layers.Layer):
    """What each item of a history weighs; the native lookup then pools them.

    A pooling is a Keras layer for its weights and its config; layers that pool build it and ask
    `weigh`, they don't call it.

    Attributes:
        combiner: of the pool: "mean" divides by the sum of the weights, "sum" doesn't.
        needs_ages: whether it can't do without `History.ages`.
        needs_query: whether it can't do without `History.query`.
    """

    combiner = "mean"
    needs_ages = False
    needs_query = False

    def weigh(self, history: History) -> Bags:
        """The bags of a history with a weight for each item."""
        raise NotImplementedError

    def build_for(self, dim: int) -> None:
        """Makes the weights for vectors of length D."""
        del dim
        self.built = True


@serializable
class Mean(Pooling):
    """All items weigh the same (Covington et al., 2016: "averaging performed best")."""

    def weigh(self, history: History) -> Bags:
        """The bags as they are."""
        return history.bags


@serializable
class RecencyWeighted(Pooling):
    """An item weighs half as much as one that is a half-life more recent.

    The mean is by `0.5 ** (position / half_life)`, where the last item of a history has position 0,
    times `0.5 ** (age / age_half_life)`, with the ages that the call gives. Only differences
    between the ages of a history matter, so that `-timestamp` is an age too. Ages are counted from
    the most recent item in their own dtype: give big ones as integers or float64.

    Args:
        half_life: in items; None: positions don't matter.
        age_half_life: in the unit of `ages`; None: ages don't matter.
        learned: whether the half-lives are trained, from these values on. Each is one weight, the
            logarithm of the half-life.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: no half-life, or one that isn't above 0.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> items = me.layers.Embedding(3, 1, weights=[[0.0], [1.0], [10.0]])
    >>> user = me.layers.UserFromItems(items, pooling=RecencyWeighted(half_life=1))
    >>> user(tf.constant([[1, 2]])).numpy().tolist()  # (0.5 * 1 + 10) / 1.5
    [[7.0]]
    """

    def __init__(
        self,
        half_life: float | None = None,
        age_half_life: float | None = None,
        learned: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.half_life, self.age_half_life, self.learned = half_life, age_half_life, learned
        if half_life is None and age_half_life is None:
            raise ValueError("RecencyWeighted: give half_life, age_half_life, or both.")
        for name, value in {"half_life": half_life, "age_half_life": age_half_life}.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value is not None and not (number and 0 < value < math.inf):
                raise ValueError(f"RecencyWeighted: {name}={value!r}; it must be a number above 0.")
        self.needs_ages = age_half_life is not None
        self.log_half_life: Any = None
        self.log_age_half_life: Any = None

    def build_for(self, dim: int) -> None:
        """Makes the weights, if they are learned."""
        del dim
        if self.learned and not self.built:
            if self.half_life is not None:
                self.log_half_life = self._logarithm("half_life", self.half_life)
            if self.age_half_life is not None:
                self.log_age_half_life = self._logarithm("age_half_life", self.age_half_life)
        self.built = True

    def weigh(self, history: History) -> Bags:
        """The bags with `0.5 ** ...` as weights, the most recent item's scaled to 1."""
        history = history.without_padding()
        half_lives = tf.zeros_like(history.bags.values, tf.float32)
        if self.half_life is not None:
            half_life = _value(self.half_life, self.log_half_life)
            half_lives += tf.cast(history.from_the_end, tf.float32) / half_life
        if self.age_half_life is not None:
            half_life = _value(self.age_half_life, self.log_age_half_life)
            half_lives += _from_youngest(history) / half_life
        return history.weighted(history.exponentials(-math.log(2.0) * half_lives))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        own = {"half_life": self.half_life, "age_half_life": self.age_half_life}
        return {**super().get_config(), **own, "learned": self.learned}

    def _logarithm(self, name: str, value: float) -> Any:
        return compat.add_weight(
            self,
            name=f"log_{name}",
            shape=(),
            dtype="float32",
            initializer=keras.initializers.Constant(math.log(value)),
            autocast=False,
        )


def _value(half_life: float, learned: Any) -> Any:
    return float(half_life) if learned is None else tf.exp(tf.convert_to_tensor(learned))


def _from_youngest(history: History) -> tf.Tensor:
    """Ages `[N]` float32, counted from the smallest of each history."""
    ages, bag_of = history.ages, history.bag_of
    assert ages is not None  # needs_ages
    youngest = tf.math.unsorted_segment_min(ages, bag_of, history.count)
    return tf.cast(ages - tf.gather(youngest, bag_of), tf.float32)


def get(pooling: Any) -> Pooling:
    """A pooling by its name, "mean", or itself.

    Raises:
        ValueError: anything else.
    """
    if isinstance(pooling, Pooling):
        return pooling
    if pooling == "mean":
        return Mean()
    raise ValueError(
        f"pooling={pooling!r}; it must be 'mean' or a pooling, such as layers.RecencyWeighted(), "
        "layers.AttentionPooling() or layers.TargetAttention()."
    )
