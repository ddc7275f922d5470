"""What a data set is made from; equal parameters give equal files."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

NUMERIC = tuple(f"I{i}" for i in range(1, 14))
CATEGORICAL = tuple(f"C{i}" for i in range(1, 27))
LABEL = "label"

# Distinct values of C1 to C26 in Criteo's Display Advertising Challenge, 33.8M in all, as the
# original DLRM counts them.
CARDINALITIES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip

# The bag sizes of MLPerf's multi-hot version of Criteo's data (DLRM-DCNv2).
MULTI_HOT = (
    3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1,
    6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1,
)  # fmt: skip

# Ids as NVTabular's Categorify gives them: 0 padding, 1 null, 2 out of vocabulary, then the
# vocabulary by falling frequency.
NULL, FIRST = 1, 3


def cardinalities(scale: float = 1.0) -> tuple[int, ...]:
    """Criteo's, times `scale`; a column keeps ten of its values, or all that it has.

    >>> sum(cardinalities()), sum(cardinalities(0.3))
    (33762577, 10128852)
    """
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")
    return tuple(max(round(count * scale), min(count, 10)) for count in CARDINALITIES)


@dataclass(frozen=True)
class Parameters:
    """A data set: `train_rows` rows, followed in time by `test_rows` more.

    Args:
        seed: of everything that is drawn.
        cardinalities: [26] vocabulary sizes; tables have three rows more, for the ids 0, 1 and 2.
        exponents: [26] of the Zipf law that ids follow: the id of rank r comes with a probability
            proportional to r ** -exponent; in [0, 2]. One number stands for all columns.
        hotness: [26] the most ids of a row. A column of 1 is a scalar; others are lists whose
            lengths are uniform on 1 ... hotness. One number stands for all columns.
        nulls: share of ids that are null.
        zeros: share of the numbers that pile up at the lowest value, as counts of 0 do.
        click_rate: share of rows whose label is 1.
        signal: standard deviation of the teacher's logit. It decides the best AUC.
        shares: of the logit's variance that comes from numbers, from single ids and from pairs of
            ids. They add up to 1.
        drift: how often, from the first row to the last, an id hands its popularity to another
            one. At 0 all rows are of one distribution.
        rows_per_file, rows_per_group: of the Parquet files. A row group is drawn at once, so
            it decides the memory needed; and it has a seed of its own.
    """

    train_rows: int
    test_rows: int
    seed: int = 1
    cardinalities: tuple[int, ...] = cardinalities(0.01)
    exponents: tuple[float, ...] | float = 1.1
    hotness: tuple[int, ...] | int = 1
    nulls: float = 0.02
    zeros: float = 0.2
    click_rate: float = 0.256
    signal: float = 1.5
    shares: tuple[float, float, float] = (0.25, 0.45, 0.3)
    drift: float = 0.0
    rows_per_file: int = 1 << 20
    rows_per_group: int = 1 << 16

    def __post_init__(self):
        for name in ("cardinalities", "exponents", "hotness"):
            value = getattr(self, name)
            each = tuple(value) if hasattr(value, "__len__") else (value,) * len(CATEGORICAL)
            object.__setattr__(self, name, each)
            if len(each) != len(CATEGORICAL):
                raise ValueError(f"{name}: {len(CATEGORICAL)} columns, got {len(each)} values")
        object.__setattr__(self, "shares", tuple(self.shares))
        whole_numbers = {
            "train_rows": [self.train_rows],
            "test_rows": [self.test_rows],
            "cardinalities": self.cardinalities,
            "hotness": self.hotness,
            "rows_per_file": [self.rows_per_file],
            "rows_per_group": [self.rows_per_group],
        }
        for name, values in whole_numbers.items():
            if any(not isinstance(value, int) or value < 1 for value in values):
                raise ValueError(f"{name} must be positive integers, got {getattr(self, name)}")
        for name in ("nulls", "zeros"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is a share in [0, 1), got {getattr(self, name)}")
        if not 0 < self.click_rate < 1:
            raise ValueError(f"click_rate is a share in (0, 1), got {self.click_rate}")
        if min(self.exponents) < 0 or max(self.exponents) > 2:
            raise ValueError(f"exponents lie in [0, 2], got {self.exponents}")
        if min(self.drift, self.signal) < 0:
            raise ValueError(
                f"drift ({self.drift}) and signal ({self.signal}) must not be negative"
            )
        if len(self.shares) != 3 or min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ValueError(f"shares: three that add up to 1, got {self.shares}")
        if self.rows_per_file % self.rows_per_group:
            raise ValueError(
                f"rows_per_file ({self.rows_per_file}) must be a multiple of rows_per_group "
                f"({self.rows_per_group})"
            )

    @property
    def rows(self) -> int:
        return self.train_rows + self.test_rows

    @property
    def table_rows(self) -> tuple[int, ...]:
        """[26] rows of the embedding tables: ids are 0 ... rows - 1."""
        return tuple(count + FIRST for count in self.cardinalities)

    def to_dict(self) -> dict:
        """Plain data, as JSON gives it back."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
        }
