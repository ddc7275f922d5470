"""`History`: the items that users have met, on their way to one vector a user."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from merlin_embeddings.bags import Bags, bag_of, positions, truncate, without_padding


class ItemVectors:
    """The vectors of items, each by itself: looked up once, to be scored and then to be pooled.

    An id map that remembers ids counts each lookup, and a regularizer acts on each.

    Args:
        look_up: the rows `[N]` int64 (-1: no vector) and vectors `[N, D]` float32 of N items.
    """

    def __init__(self, look_up: Callable[[Bags], tuple[tf.Tensor, tf.Tensor]]):
        self._look_up = look_up
        self._items: tf.Tensor | None = None
        self._found: tuple[tf.Tensor, tf.Tensor] | None = None

    def __call__(self, bags: Bags) -> tf.Tensor:
        """The vectors `[N, D]` of the N items of bags."""
        if self._found is None or self._items is not bags.values:
            self._items, self._found = bags.values, self._look_up(bags.singles())
        return self._found[1]

    def pooled(self, bags: Bags, combiner: str) -> tf.Tensor | None:
        """What a lookup of the bags would be, `[B, D]` float32.

        None if nobody asked for vectors of their items, or for a maximum, whose lookup says what it
        makes of weights.

        Args:
            bags: B bags of N items.
            combiner: as of a `FeatureConfig`.
        """
        if self._found is None or self._items is not bags.values or combiner == "max":
            return None
        rows, vectors = self._found
        weights = tf.cast(rows >= 0, tf.float32)
        if bags.weights is not None:
            weights = tf.where(rows >= 0, bags.weights, 0.0)
        of, count = bag_of(bags), tf.size(bags.row_splits, tf.int64) - 1
        sums = tf.math.unsorted_segment_sum(vectors * weights[:, tf.newaxis], of, count)
        if combiner == "sum":
            return sums
        powers = weights if combiner == "mean" else tf.square(weights)
        divisors = tf.math.unsorted_segment_sum(powers, of, count)
        divisors = divisors if combiner == "mean" else tf.sqrt(divisors)
        return tf.math.divide_no_nan(sums, divisors[:, tf.newaxis])


@dataclasses.dataclass(frozen=True)
class History:
    """What a pooling may want to know of B histories of N items in all.

    Attributes:
        bags: the items, in the order of time.
        look_up: gives the vectors `[N, D]` float32 of the items of bags, each by itself.
        ages: `[N]` numbers, how long ago each item was met, or None.
        query: `[B, Q]`, what the history is asked about, or None.
    """

    bags: Bags
    look_up: ItemVectors
    ages: tf.Tensor | None = None
    query: tf.Tensor | None = None

    def truncated(self, max_length: int, keep: str) -> History:
        """Histories of at most `max_length` items; see `bags.truncate`."""
        return self._changed(lambda bags: truncate(bags, max_length, keep))

    def without_padding(self) -> History:
        """Histories without padding; see `bags.without_padding`."""
        return self._changed(without_padding)

    @property
    def vectors(self) -> tf.Tensor:
        """The vectors `[N, D]` of the items, float32."""
        return self.look_up(self.bags)

    @property
    def from_the_end(self) -> tf.Tensor:
        """Where an item stands: `[N]` int64, 0 for the last one of a history."""
        return positions(self.bags, "last")

    @property
    def bag_of(self) -> tf.Tensor:
        """Which history an item is of: `[N]` int64."""
        return bag_of(self.bags)

    @property
    def count(self) -> tf.Tensor:
        """B, int64."""
        return tf.size(self.bags.row_splits, tf.int64) - 1

    def weighted(self, weights: tf.Tensor) -> Bags:
        """The bags with weights `[N]`, times the weights they had."""
        bags = copy.copy(self.bags)
        weights = tf.cast(weights, tf.float32)
        bags.weights = weights if bags.weights is None else bags.weights * weights
        return bags

    def exponentials(self, scores: tf.Tensor) -> tf.Tensor:
        """`exp(scores)` `[N]` float32, each history's scaled so that the largest is 1.

        A mean with these weights is one by the softmax of the scores.
        """
        scores, bag_of = tf.cast(scores, tf.float32), self.bag_of
        largest = tf.math.unsorted_segment_max(scores, bag_of, self.count)
        return tf.exp(scores - tf.stop_gradient(tf.gather(largest, bag_of)))

    def _changed(self, change: Callable[[Bags], Bags]) -> History:
        # What is changed takes weights along: here the numbers of the items, and by them the rest.
        numbered = copy.copy(self.bags)
        numbered.weights = tf.range(tf.size(self.bags.values, tf.int64))
        bags = change(numbered)
        if bags is numbered:
            return self
        bags, kept = copy.copy(bags), bags.weights
        bags.weights = None if self.bags.weights is None else tf.gather(self.bags.weights, kept)
        ages = None if self.ages is None else tf.gather(self.ages, kept)
        return dataclasses.replace(self, bags=bags, ages=ages)
