"""Rows, a block at a time. A block depends on the parameters and its number alone."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from criteo_data.parameters import FIRST, NULL, NUMERIC, Parameters
from criteo_data.teacher import Teacher, hash64
from criteo_data.zipf import Zipf

CALIBRATION_ROWS = 1 << 16

# 16 random bits choose one of these: standard normal numbers without computing any.
_normal = NormalDist()
QUANTILES = np.array([_normal.inv_cdf((i + 0.5) / 65536) for i in range(65536)], np.float32)


@dataclass(frozen=True)
class Block:
    """B rows: numbers [13, B] float32; ids, for each of 26 columns (values [N] int64, row_splits
    [B + 1] int32 | None); labels [B] int32; probabilities [B] float64."""

    numbers: np.ndarray
    ids: list
    labels: np.ndarray
    probabilities: np.ndarray


class Rows:
    """The distribution of rows, and the teacher calibrated on it."""

    def __init__(self, parameters: Parameters):
        self.parameters = parameters
        self._laws = [
            Zipf(count, exponent)
            for count, exponent in zip(parameters.cardinalities, parameters.exponents, strict=True)
        ]
        random = self._random(0, 0)
        times = random.random(CALIBRATION_ROWS) if parameters.drift else None
        self.teacher = Teacher(parameters, self._features(random, CALIBRATION_ROWS, times))

    def block(self, number: int, first: int, count: int) -> Block:
        """Block `number`, which has `count` rows from row `first` of the data set on."""
        random = self._random(1, number)
        times = None
        if self.parameters.drift:
            times = (first + np.arange(count)) / self.parameters.rows
        numbers, ids = self._features(random, count, times)
        probabilities = self.teacher.probability(numbers, ids)
        labels = (random.random(count) < probabilities).astype(np.int32)
        return Block(numbers, ids, labels, probabilities)

    def _random(self, stream: int, number: int) -> np.random.Generator:
        seeds = np.random.SeedSequence([self.parameters.seed, stream, number])
        return np.random.Generator(np.random.SFC64(seeds))

    def _features(self, random, count: int, times) -> tuple[np.ndarray, list]:
        return self._numbers(random, count), [
            self._column(random, column, count, times) for column in range(len(self._laws))
        ]

    def _numbers(self, random, count: int) -> np.ndarray:
        """[13, B]: normal, as logarithms of counts are, with a heap at the lowest value."""
        choices = random.integers(0, 1 << 16, (len(NUMERIC), count), np.uint16)
        np.maximum(choices, int(self.parameters.zeros * 65536), out=choices)
        return QUANTILES.take(choices)

    def _column(self, random, column: int, count: int, times) -> tuple[np.ndarray, np.ndarray]:
        """(values, row_splits | None) of a categorical column."""
        row_splits, hotness = None, self.parameters.hotness[column]
        if hotness > 1:
            row_splits = np.zeros(count + 1, np.int32)
            np.cumsum(random.integers(1, hotness + 1, count), out=row_splits[1:])
            if times is not None:
                times = np.repeat(times, np.diff(row_splits))
            count = int(row_splits[-1])
        values = self._laws[column].draw(random, count)
        if times is not None:
            values = self._drifted(column, values, times)
        values += FIRST
        threshold = int(self.parameters.nulls * 65536)
        if threshold:
            bits = random.integers(0, 1 << 16, count, np.uint16)
            values[bits < threshold] = NULL
        return values, row_splits

    def _drifted(self, column: int, ranks: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Who holds a rank [N] at a time in [0, 1): holders change one after another, each rank
        at times of its own."""
        phases = (hash64(ranks, column) >> np.uint64(32)).astype(np.float64) * 2.0**-32
        changes = (self.parameters.drift * times + phases).astype(np.int64)
        count = self.parameters.cardinalities[column]
        stride = max(1, int(0.618 * count))
        return (ranks + changes * stride) % count
