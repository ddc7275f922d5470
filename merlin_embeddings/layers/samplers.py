"""Negatives for `SampledSoftmax`, and how many of each are to be expected.

All but `InBatch` draw `num_sampled` rows of the table for each batch, the same ones for all of its
samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat
from merlin_embeddings.config import is_row_count

_serializable = keras.utils.register_keras_serializable(package="merlin_embeddings")


class Sampler(keras.layers.Layer):
    """Draws negatives, and knows their expected counts.

    A sampler is a Keras layer for its weights and its config; `SampledSoftmax` builds and asks it.

    Args:
        **kwargs: of `keras.layers.Layer`.
    """

    @property
    def by_row(self) -> Sequence[Any]:
        """What it has learned of each row, `[rows]` each; of rows never seen, zeros."""
        return ()

    def check(self, rows: int, name: str) -> None:
        """Raises ValueError if a table of so many rows, called `name`, can't be drawn from."""

    def build_for(self, rows: int) -> None:
        """Makes the weights for a table of so many rows."""
        del rows
        self.built = True

    def sample(self, positives: tf.Tensor, training: bool) -> tf.Tensor:
        """The negatives of a batch.

        Args:
            positives: `[B]` int64, the row of each sample's positive.
            training: whether the step trains.

        Returns:
            `[S]` int64 rows; a positive may be among them.
        """
        raise NotImplementedError

    def log_expected_count(self, rows: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
        """The logarithm of how often a batch's negatives have each row on average.

        Args:
            rows: `[N]` int64.
            batch_size: B, a scalar.

        Returns:
            `[N]` float32; -inf for rows that are never drawn.
        """
        raise NotImplementedError


class _Drawn(Sampler):
    """A sampler of a fixed number of negatives.

    Args:
        num_sampled: S, how many.
        first: rows below aren't drawn; with ids of NVTabular's Categorify 3: padding, null and
            unknown.
        seed: None: it follows `keras.utils.set_random_seed`.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: `num_sampled` is no positive integer, or `first` is negative.
    """

    def __init__(self, num_sampled: int, first: int = 0, seed: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        kind = type(self).__name__
        if not is_row_count(num_sampled):
            raise ValueError(f"{kind}: num_sampled={num_sampled!r}; it must be a positive integer.")
        if not (first == 0 or is_row_count(first)):
            raise ValueError(f"{kind}: first={first!r}; it must be an integer of 0 or more.")
        self.num_sampled, self.first, self.seed = int(num_sampled), int(first), seed
        self.items = 0  # to draw from, known from `build_for` on

    def check(self, rows: int, name: str) -> None:
        """Raises ValueError if there are fewer items than negatives."""
        if self.num_sampled > rows - self.first:
            raise ValueError(
                f"{name}: {type(self).__name__} draws num_sampled={self.num_sampled} negatives, "
                f"but there are {max(rows - self.first, 0)} items: {rows} rows, from row "
                f"{self.first} on. Uniform with as many negatives as items is the full softmax."
            )

    def build_for(self, rows: int) -> None:
        """Notes how many items there are."""
        self.items = rows - self.first
        self.built = True

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        own = {"num_sampled": self.num_sampled, "first": self.first, "seed": self.seed}
        return {**super().get_config(), **own}

    def _never_below_first(self, rows: tf.Tensor, values: Any) -> tf.Tensor:
        minus_inf = tf.fill(tf.shape(rows), -math.inf)
        return tf.where(rows < self.first, minus_inf, tf.cast(values, tf.float32))


@_serializable
class Uniform(_Drawn):
    """Distinct negatives, each item as likely as any other: all of them are the full softmax.

    A row is drawn with probability S / items, exactly.

    >>> Uniform(200, first=3).num_sampled
    200
    """

    def sample(self, positives: tf.Tensor, training: bool) -> tf.Tensor:
        """`[S]` distinct rows."""
        del training
        drawn = tf.random.uniform_candidate_sampler(
            true_classes=tf.zeros([1, 1], tf.int64),  # only for a count that we know
            num_true=1,
            num_sampled=self.num_sampled,
            unique=True,
            range_max=self.items,
            seed=self.seed,
        )
        return drawn.sampled_candidates + self.first

    def log_expected_count(self, rows: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
        """`log(S / items)`."""
        del batch_size
        value = tf.fill(tf.shape(rows), math.log(self.num_sampled / self.items))
        return self._never_below_first(rows, value)


@_serializable
class LogUniform(_Drawn):
    """Negatives by their rank in popularity, for rows in falling order of frequency.

    Item k from `first` on has the probability `log((k + 2) / (k + 1)) / log(items + 1)`, nearly
    Zipf's law. NVTabular's Categorify gives ids in this order. Draws are independent: a row may
    come twice, and S times its probability is its expected count, exactly.
    """

    def sample(self, positives: tf.Tensor, training: bool) -> tf.Tensor:
        """`[S]` rows."""
        del training
        uniform = tf.random.uniform([self.num_sampled], dtype=tf.float64, seed=self.seed)
        item = tf.cast(tf.exp(uniform * math.log(self.items + 1)), tf.int64) - 1
        return tf.minimum(item, self.items - 1) + self.first

    def log_expected_count(self, rows: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
        """`log(S * p)`."""
        del batch_size
        item = tf.cast(tf.maximum(rows - self.first, 0), tf.float64)
        probability = tf.math.log1p(1 / (item + 1)) / math.log(self.items + 1)
        return self._never_below_first(rows, tf.math.log(self.num_sampled * probability))


@_serializable
class Unigram(_Drawn):
    """Negatives by given counts, each drawn with a probability in proportion to its count.

    Draws are independent: a row may come twice, and S times its probability is its expected count,
    exactly. The probabilities are a weight of 8 bytes a row: they are saved with the weights, not
    with the config.

    Args:
        num_sampled: S.
        counts: `[rows]`, how often each row occurs in the data; 0: never drawn. None only where
            weights are loaded afterwards.
        distortion: the power that counts are raised to: 0.75 is word2vec's, 0 uniform.
        first: see `Uniform`; counts below count for nothing.
        seed: see `Uniform`.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        num_sampled: int,
        counts: Sequence[float] | np.ndarray | None = None,
        distortion: float = 1.0,
        first: int = 0,
        seed: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(num_sampled, first, seed, **kwargs)
        self.distortion = distortion
        self._probabilities = None
        if counts is not None:
            self._probabilities = _probabilities("Unigram", counts, distortion, first)
        self.cumulative: Any = None

    def check(self, rows: int, name: str) -> None:
        """Raises ValueError for another number of counts, too."""
        super().check(rows, name)
        _check_length(self._probabilities, rows, name, "Unigram")

    def build_for(self, rows: int) -> None:
        """Makes the weight `[rows]`: the probability of each row and all before it."""
        if not self.built:
            values = np.full(rows, 1 / rows) if self._probabilities is None else self._probabilities
            self.cumulative = _constant(self, "cumulative", np.cumsum(values), "float64")
        super().build_for(rows)

    def sample(self, positives: tf.Tensor, training: bool) -> tf.Tensor:
        """`[S]` rows."""
        del training
        cumulative = tf.convert_to_tensor(self.cumulative)
        uniform = tf.random.uniform([self.num_sampled], dtype=tf.float64, seed=self.seed)
        # In units of what the sum came to, so that rounding draws no row of probability 0.
        drawn = tf.searchsorted(cumulative, uniform * cumulative[-1], side="right")
        return tf.cast(drawn, tf.int64)

    def log_expected_count(self, rows: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
        """`log(S * p)`."""
        del batch_size
        cumulative = tf.convert_to_tensor(self.cumulative)
        # The lookup refuses rows that there aren't, by name.
        rows = tf.clip_by_value(rows, 0, tf.shape(cumulative, tf.int64)[0] - 1)
        before = tf.gather(cumulative, tf.maximum(rows - 1, 0))
        before = tf.where(rows == 0, tf.zeros_like(before), before)
        probability = (tf.gather(cumulative, rows) - before) / cumulative[-1]
        return tf.cast(tf.math.log(self.num_sampled * probability), tf.float32)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments but the counts."""
        return {**super().get_config(), "distortion": self.distortion}


@_serializable
class InBatch(Sampler):
    """The other samples' positives are a sample's negatives: nothing more is looked up.

    A row is among the distinct positives of a batch of B with probability `1 - (1 - p)^B`, where p
    is its share of the data. Without counts the probability is estimated while training, by how
    many steps pass between the batches that have a row (Yi et al., 2019, "Sampling-Bias-Corrected
    Neural Modeling for Large Corpus Item Recommendations", algorithm 2); this costs 12 bytes a row.

    Args:
        counts: `[rows]`, how often each row is a positive in the data; kept as a weight of 8 bytes
            a row, not with the config. None: estimated.
        learning_rate: of the estimate, alpha in the paper.
        estimated: whether frequencies are estimated; None: where there are no counts. False without
            counts: they are loaded with the weights.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        counts: Sequence[float] | np.ndarray | None = None,
        learning_rate: float = 0.05,
        estimated: bool | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not 0 < learning_rate <= 1:
            raise ValueError(f"InBatch: learning_rate={learning_rate!r}; it must be in (0, 1].")
        self.learning_rate = learning_rate
        self.estimated = counts is None if estimated is None else estimated
        self._probabilities = None if counts is None else _probabilities("InBatch", counts, 1.0, 0)
        self.probabilities: Any = None
        self.steps: Any = None
        self.last_step: Any = None
        self.gap: Any = None

    def check(self, rows: int, name: str) -> None:
        """Raises ValueError for another number of counts than rows."""
        _check_length(self._probabilities, rows, name, "InBatch")

    def build_for(self, rows: int) -> None:
        """Makes the weights `[rows]`."""
        if self.built:
            return
        if self.estimated:
            self.steps = _constant(self, "steps", np.zeros(()), "int64")
            self.last_step = _constant(self, "last_step", np.zeros(rows), "int64")
            self.gap = _constant(self, "gap", np.zeros(rows), "float32")
        else:
            values = np.full(rows, 1 / rows) if self._probabilities is None else self._probabilities
            self.probabilities = _constant(self, "probabilities", values, "float64")
        self.built = True

    @property
    def by_row(self) -> Sequence[Any]:
        return (self.last_step, self.gap) if self.estimated else ()

    def sample(self, positives: tf.Tensor, training: bool) -> tf.Tensor:
        """The distinct positives `[S]`."""
        distinct = tf.unique(positives).y
        if training and self.estimated:
            self._see(distinct)
        return distinct

    def log_expected_count(self, rows: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
        """`log(1 - (1 - p)^B)`, or its estimate: minus the logarithm of the steps in between."""
        values = self.gap if self.estimated else self.probabilities
        values = tf.convert_to_tensor(values)
        rows = tf.clip_by_value(rows, 0, tf.shape(values, tf.int64)[0] - 1)
        values = tf.gather(values, rows)
        if self.estimated:
            steps = tf.cast(tf.convert_to_tensor(self.steps), tf.float32) + 1
            return -tf.math.log(tf.where(values > 0, values, steps))  # not seen in all the steps
        log_absent = tf.cast(batch_size, tf.float64) * tf.math.log1p(-values)
        return tf.cast(tf.math.log(-tf.math.expm1(log_absent)), tf.float32)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments but the counts."""
        own = {"learning_rate": self.learning_rate, "estimated": self.estimated}
        return {**super().get_config(), **own}

    def _see(self, distinct: tf.Tensor) -> None:
        """Counts a step, and corrects the estimates of the rows that it has."""
        steps, last_step, gap = map(compat.raw_variable, (self.steps, self.last_step, self.gap))
        # A batch may have ids that there aren't: the lookup says so, and nothing is written here.
        distinct = tf.boolean_mask(distinct, (distinct >= 0) & (distinct < gap.shape[0]))
        now = steps.assign_add(1, read_value=True)
        before = tf.gather(last_step, distinct)
        since = tf.cast(now - before, tf.float32)
        known = tf.gather(gap, distinct)
        known += self.learning_rate * (since - known)
        gap.scatter_update(tf.IndexedSlices(tf.where(before == 0, since, known), distinct))
        last_step.scatter_update(tf.IndexedSlices(tf.fill(tf.shape(distinct), now), distinct))


def _probabilities(kind: str, counts: Any, distortion: float, first: int) -> np.ndarray:
    counts = np.array(counts, np.float64)
    if counts.ndim != 1 or not np.all(np.isfinite(counts)) or np.any(counts < 0):
        raise ValueError(
            f"{kind}: counts must be a number of 0 or more for each row, got shape "
            f"{list(counts.shape)}" + (f" with {counts.min()}." if counts.ndim == 1 else ".")
        )
    counts[:first] = 0
    powers = np.where(counts > 0, counts**distortion, 0)
    if not powers.sum() > 0:
        raise ValueError(f"{kind}: counts are all 0; there is nothing to draw.")
    return powers / powers.sum()


def _check_length(probabilities: np.ndarray | None, rows: int, name: str, kind: str) -> None:
    if probabilities is not None and len(probabilities) != rows:
        raise ValueError(
            f"{name}: {kind} has {len(probabilities)} counts, the table has {rows} rows; give a "
            "count for each row, padding too."
        )


def _constant(layer: keras.layers.Layer, name: str, values: np.ndarray, dtype: str) -> Any:
    """A weight that isn't trained."""
    return compat.add_weight(
        layer,
        name=name,
        shape=values.shape,
        dtype=dtype,
        initializer=lambda shape, dtype=None: tf.cast(values, dtype),
        trainable=False,
        autocast=False,
    )
