"""Streams of samples in the order of time: click logs whose hot ids change, and MovieLens.

What the click logs are made of was settled, and committed, before there was any id map to try on
them.
"""

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

import movielens_data
import numpy as np
from criteo_data import CATEGORICAL, Parameters, cardinalities
from criteo_data.rows import Rows
from criteo_data.teacher import hash64

DAY = 32_768  # samples
DAYS = 12
LARGE = 500  # columns with more ids than this have them as logs have: any 64 bits
# Criteo's cardinalities, 5,000 at most: so few samples can't tell of more. On the way each rank of
# popularity changes hands twice.
CRITEO = Parameters(
    train_rows=DAYS * DAY,
    test_rows=1,
    seed=6,
    cardinalities=tuple(min(count, 2000) for count in cardinalities()),
    exponents=1.0,
    signal=2.0,
    shares=(0.1, 0.8, 0.1),
    drift=0.4,
)


@dataclass(frozen=True)
class Stream:
    """N samples in the order of time.

    Attributes:
        name: for people.
        ids: {column: [N] int64}.
        vocabulary: {column: ids are below it}; columns that aren't here have an open id space.
        numbers: [N, K] float32; K may be 0.
        labels: [N] float32, 0 or 1.
        days: [D + 1] where the days begin, and the last one ends.
        scores: {column: [N] int64}, what ids are worth to a map that is told.
    """

    name: str
    ids: dict[str, np.ndarray]
    vocabulary: dict[str, int]
    numbers: np.ndarray
    labels: np.ndarray
    days: np.ndarray
    scores: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def open_columns(self) -> list[str]:
        """The columns whose ids are any 64 bits: it is for an id map to say which row they have."""
        return [name for name in self.ids if name not in self.vocabulary]

    def distinct(self, column: str) -> int:
        """How many ids of a column there are."""
        return len(np.unique(self.ids[column]))

    def by_frequency(self) -> "Stream":
        """The same stream, the ids of open columns renumbered: 0 is the one that comes most often.

        It takes all of the stream to know; who has it can choose the ids that own a row at best.
        """
        ids, vocabulary = dict(self.ids), dict(self.vocabulary)
        for name in self.open_columns:
            _, numbers, counts = np.unique(ids[name], return_inverse=True, return_counts=True)
            place = np.empty(len(counts), np.int64)
            place[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
            ids[name], vocabulary[name] = place[numbers], len(counts)
        return dataclasses.replace(self, ids=ids, vocabulary=vocabulary)

    def with_counts(self, of_first_day: bool) -> "Stream":
        """The same stream, ids of open columns scored by how often they have come.

        Args:
            of_first_day: on the first day, which is known beforehand; else in the stream so far,
                this sample counted.
        """
        end = self.days[1] if of_first_day else 0
        scores = {
            name: counts_in(self.ids[name], self.ids[name][:end])
            if of_first_day
            else counts_so_far(self.ids[name])
            for name in self.open_columns
        }
        return dataclasses.replace(self, scores=scores)

    def first(self, days: int) -> "Stream":
        """The first days."""
        end = self.days[days]
        return dataclasses.replace(
            self,
            ids={name: ids[:end] for name, ids in self.ids.items()},
            numbers=self.numbers[:end],
            labels=self.labels[:end],
            days=self.days[: days + 1],
            scores={name: scores[:end] for name, scores in self.scores.items()},
        )

    def inputs(self, rows=slice(None)) -> dict[str, np.ndarray]:
        """Samples as a model takes them."""
        inputs = {name: ids[rows] for name, ids in self.ids.items()}
        if self.numbers.shape[1]:
            inputs["numbers"] = self.numbers[rows]
        inputs |= {score_of(name): scores[rows] for name, scores in self.scores.items()}
        return inputs

    def by_day(self, values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(labels, values) of each day."""
        for first, end in zip(self.days, self.days[1:], strict=False):
            yield self.labels[first:end], values[first:end]


def score_of(column: str) -> str:
    """What a model calls the scores of a column."""
    return f"{column}_score"


def counts_so_far(ids: np.ndarray) -> np.ndarray:
    """[N] int64: how often each of the ids [N] has come up to its place, that one counted."""
    order = np.argsort(ids, kind="stable")
    _, first, counts = np.unique(ids[order], return_index=True, return_counts=True)
    found = np.empty(len(ids), np.int64)
    found[order] = np.arange(1, len(ids) + 1) - np.repeat(first, counts)
    return found


def counts_in(ids: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[N] int64: how often each of the ids [N] stands among others [M]."""
    there, counts = np.unique(others, return_counts=True)
    places = np.searchsorted(there, ids).clip(max=len(there) - 1)
    return np.where(there[places] == ids, counts[places], 0)


def scattered(ids: np.ndarray) -> np.ndarray:
    """Other ids for these, one for one, that look like hashes; small ids tell their popularity."""
    return hash64(np.asarray(ids), 0).view(np.int64)


def click_logs() -> Stream:
    """All click logs."""
    rows = Rows(CRITEO)
    blocks = [rows.block(day, day * DAY, DAY) for day in range(DAYS)]
    ids, vocabulary = {}, {}
    for at, name in enumerate(CATEGORICAL):
        values = np.concatenate([block.ids[at][0] for block in blocks])
        if CRITEO.cardinalities[at] > LARGE:
            ids[name] = scattered(values)
        else:
            ids[name], vocabulary[name] = values, CRITEO.table_rows[at]
    return Stream(
        "click logs",
        ids,
        vocabulary,
        np.concatenate([block.numbers for block in blocks], axis=1).T.copy(),
        np.concatenate([block.labels for block in blocks]).astype(np.float32),
        DAY * np.arange(DAYS + 1),
    )


def movielens(cache: Path, by: str = "time") -> Stream:
    """MovieLens-100k: which user met which film, by time or in random order.

    In random order the days are the parts of `movielens_data.split`: train, valid, test.
    """
    ratings = movielens_data.load(cache)
    if by == "time":
        ratings = ratings.sort_values("timestamp", kind="stable")
        day = (ratings["timestamp"] // 86_400).to_numpy()
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(day)) + 1, [len(day)]])
    else:
        parts = list(movielens_data.split(ratings, by).values())
        ratings = movielens_data.pd.concat(parts)
        bounds = np.cumsum([0, *map(len, parts)])
    return Stream(
        f"MovieLens, {'by time' if by == 'time' else 'random order'}",
        {name: scattered(ratings[name].to_numpy()) for name in ("user", "item")},
        {},
        np.zeros((len(ratings), 0), np.float32),
        ratings["like"].to_numpy(),
        bounds,
    )
