"""Streams for the id maps: who comes, how often, and who is there already.

Ids are any 64 bits, as hashed strings are. Their popularity is a Zipf(1.05) law or uniform. How
many there are says how full a map gets: half as many as it has rows, 95% of them, or ten times as
many. Only numpy is used here: workers of every environment import this module.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from criteo_data.teacher import hash64
from criteo_data.zipf import Zipf

BATCH = 65_536
EXPONENTS = {"zipf": 1.05, "uniform": 0.0}
FULLNESS = {"50%": 0.5, "95%": 0.95, "overfull": 10.0}  # distinct ids for each row
SEED = 7


@dataclass(frozen=True)
class Case:
    """`capacity` rows, and the stream of ids that want them."""

    capacity: int
    full: str
    law: str

    @property
    def universe(self) -> int:
        """Distinct ids of the stream."""
        return int(self.capacity * FULLNESS[self.full])

    @property
    def label(self) -> str:
        return f"{self.capacity / 1e6:g}M rows, {self.full}, {self.law}"

    def record(self) -> dict:
        return asdict(self) | {"universe": self.universe, "batch": BATCH}


def scattered(ranks: np.ndarray) -> np.ndarray:
    """The id [N] int64 of each rank of popularity [N]: one for one, any 64 bits."""
    return hash64(np.asarray(ranks), SEED).view(np.int64)


def stream(case: Case, steps: int) -> np.ndarray:
    """[steps, 1, BATCH, 1] int64, as adapters take ids."""
    random = np.random.default_rng([SEED, case.capacity, case.universe, steps])
    ranks = Zipf(case.universe, EXPONENTS[case.law]).draw(random, steps * BATCH)
    return scattered(ranks).reshape(steps, 1, BATCH, 1)


def first(case: Case) -> np.ndarray:
    """[N] int64: the ids that are there before the stream begins, each once, in a random order.

    All there are, but no more than there are rows: the most popular ones.
    """
    count = min(case.universe, case.capacity)
    return scattered(np.random.default_rng(SEED).permutation(count))
