"""`History`: the items that users have met, on their way to one vector a user."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from merlin_embeddings.bags import Bags, bag_of, positions, truncate, without_padding


@dataclasses.dataclass(frozen=True)
class History:
    """What a pooling may want to know of B histories of N items in all.

    Attributes:
        bags: the items, in the order of time.
        look_up: vectors `[N, D]` float32 of the items of bags, each by itself.
        ages: `[N]` numbers, how long ago each item was met, or None.
        query: `[B, Q]`, what the history is asked about, or None.
    """

    bags: Bags
    look_up: Callable[[Bags], tf.Tensor]
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
        return self.look_up(self.bags.singles())

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
