"""Bounded Zipf laws without a table of probabilities."""

from __future__ import annotations

import numpy as np


class Zipf:
    """Ranks 0 ... count - 1, rank r with a probability proportional to (r + 1) ** -exponent.

    Rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
    monotone discrete distributions", 1996): exact, and of constant memory however many ranks.
    Its names: h(x) = x ** -exponent, H an antiderivative of h. A draw inverts H at a uniform
    point, rounds, and is taken unless it falls outside of the histogram under h. At most a few
    in a hundred are drawn again.
    """

    def __init__(self, count: int, exponent: float):
        self.count, self.exponent = count, exponent
        self._low = self._area(np.float64(1.5)) - 1.0
        self._high = self._area(np.float64(count + 0.5))
        # Whatever lies this close to its rank from below is inside: no need to look.
        self._sure = 2.0 - self._inverse_area(self._area(np.float64(2.5)) - 2.0**-exponent)

    def draw(self, random: np.random.Generator, size: int) -> np.ndarray:
        """Ranks [size] int64."""
        ranks, rejected = self._attempt(random, size)
        while rejected.size:
            ranks[rejected], again = self._attempt(random, rejected.size)
            rejected = rejected[again]
        return ranks

    def _attempt(self, random, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Ranks [size], and where among them some must be drawn again."""
        area = random.random(size)
        area *= self._low - self._high
        area += self._high
        x = self._inverse_area(area)
        places = (x + 0.5).astype(np.int64)
        np.clip(places, 1, self.count, out=places)  # rounding may lead beyond the ends
        unsure = np.flatnonzero(places - x > self._sure)
        k = places[unsure].astype(np.float64)
        outside = area[unsure] < self._area(k + 0.5) - k**-self.exponent
        places -= 1
        return places, unsure[outside]

    def _area(self, x):
        """H(x) = (x ** (1 - exponent) - 1) / (1 - exponent), the logarithm at exponent 1."""
        power = 1.0 - self.exponent
        if abs(power) < 1e-6:  # the quotient would lose its digits
            return np.log(x)
        return (x**power - 1.0) / power

    def _inverse_area(self, area):
        power = 1.0 - self.exponent
        if abs(power) < 1e-6:
            return np.exp(area)
        x = area * power
        x += 1.0
        x **= 1.0 / power
        return x
