"""The planted teacher: the true probability that a row is clicked.

    logit = bias + signal * (numbers + single ids + pairs of ids)

Each of the three parts has mean 0 and its share of the variance, both measured once on a sample.
The number of ids costs no memory: an id's hash says what it does.
"""

from __future__ import annotations

import numpy as np

from criteo_data.parameters import CATEGORICAL, NUMERIC, Parameters

# What an id brings to a row: its own effect, and a vector that meets the vector of the other
# column of its pair in a dot product: what the dot products of DLRM can learn.
LANES = 4
PAIRS = tuple((c, c + len(CATEGORICAL) // 2) for c in range(len(CATEGORICAL) // 2))


def hash64(ids: np.ndarray, salt: int) -> np.ndarray:
    """[N] integers -> [N] uint64: the finaliser of MurmurHash3, salted before."""
    h = ids.astype(np.uint64)
    h += np.uint64(salt)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h ^= h >> np.uint64(33)
        h *= np.uint64(factor)
    h ^= h >> np.uint64(33)
    return h


class Teacher:
    """Knows what numbers and ids do. Made of parameters and of the rows it is calibrated on.

    Args:
        parameters: of the data set.
        sample: (numbers, ids) as `parts` takes them, of the distribution to be drawn from.
    """

    def __init__(self, parameters: Parameters, sample: tuple):
        self.parameters = parameters
        random = np.random.default_rng([parameters.seed, 0x7EAC])
        self._salts = [int(salt) for salt in random.integers(0, 1 << 63, len(CATEGORICAL))]
        self._linear, self._square = random.standard_normal((2, len(NUMERIC))).astype(np.float32)
        parts = self.parts(*sample)
        self._means = parts.mean(axis=1)
        deviations = parts.std(axis=1)
        shares = np.sqrt(np.array(parameters.shares)) * parameters.signal
        # A part may be constant: tables of one row, say.
        self._scales = np.divide(shares, deviations, np.zeros(3), where=deviations > 1e-6)
        self._bias = 0.0
        self._bias = _bias_for(self.logit(*sample), parameters.click_rate)

    def logit(self, numbers: np.ndarray, ids: list) -> np.ndarray:
        """[B] float64 of numbers and ids as in `parts`."""
        parts = self.parts(numbers, ids)
        return self._bias + self._scales @ (parts - self._means[:, None])

    def probability(self, numbers: np.ndarray, ids: list) -> np.ndarray:
        """[B] float64: the probability of a click."""
        return 1 / (1 + np.exp(-self.logit(numbers, ids)))

    def parts(self, numbers: np.ndarray, ids: list) -> np.ndarray:
        """What numbers, single ids and pairs of ids say: [3, B] float64, not yet scaled.

        Args:
            numbers: [13, B] float32.
            ids: for each of 26 columns (values [N], row_splits [B + 1] | None), None where a row
                has one id.
        """
        batch = numbers.shape[1]
        result = np.zeros((3, batch))
        for number, linear, square in zip(numbers, self._linear, self._square, strict=True):
            result[0] += number * (linear + square * number)
        vectors = [self._vectors(c, *column) for c, column in enumerate(ids)]
        for vector in vectors:
            result[1] += vector[:, 0]
        for c, d in PAIRS:
            result[2] += np.einsum("bk,bk->b", vectors[c][:, 1:], vectors[d][:, 1:])
        return result

    def _vectors(self, column: int, values: np.ndarray, row_splits) -> np.ndarray:
        """[B, 4] float32: what the ids of a column bring; the mean over a list."""
        bits = hash64(values, self._salts[column])
        vectors = bits.view(np.int16).astype(np.float32).reshape(-1, LANES)
        vectors *= np.float32(3**0.5 / 32768)  # uniform, of mean 0 and variance 1
        if row_splits is None:
            return vectors
        lengths = np.diff(row_splits)[:, None].astype(np.float32)
        return np.add.reduceat(vectors, row_splits[:-1], axis=0) / lengths

    def record(self) -> dict:
        """What was calibrated, as plain data."""
        return {
            "bias": self._bias,
            "means": self._means.tolist(),
            "scales": self._scales.tolist(),
            "pairs": [[CATEGORICAL[c], CATEGORICAL[d]] for c, d in PAIRS],
        }


def _bias_for(logits: np.ndarray, rate: float) -> float:
    """The bias with which logits [N] make `rate` clicks a row, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        if np.mean(1 / (1 + np.exp(-(logits + middle)))) < rate:
            low = middle
        else:
            high = middle
    return (low + high) / 2
