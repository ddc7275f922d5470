"""MovieLens-100k as sequences: what users met, in order, the last one held out."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

PADDING = 0  # items are 1, 2, ... in falling order of their frequency in training


@dataclass(frozen=True)
class Samples:
    """N times: a user, the items met before, the next one, and whether it was liked."""

    user: np.ndarray  # [N]
    history: np.ndarray  # [N, L], the most recent item last, padded in front
    item: np.ndarray  # [N]
    like: np.ndarray  # [N], 1 for 4 stars or more

    def part(self, rows) -> "Samples":
        return Samples(self.user[rows], self.history[rows], self.item[rows], self.like[rows])

    def __len__(self) -> int:
        return len(self.user)


@dataclass(frozen=True)
class Sequences:
    """Users' items in the order of time.

    The last `held_out` items of a user are tested on, and as many before them choose the epoch.
    """

    users: int
    rows: int  # of a table of items, padding included
    counts: np.ndarray  # [rows], how often training has an item
    train: Samples
    valid: Samples
    test: Samples
    seen: dict[str, list[np.ndarray]]  # "valid", "test": what each sample's user met before


def sequences(ratings: pd.DataFrame, max_length: int = 50, held_out: int = 1) -> Sequences:
    """Samples of all users, each item a target once there is a history before it.

    Args:
        ratings: of `movielens_data.load`.
        max_length: L, items of a history.
        held_out: how many of a user's items are in `test`, and in `valid`.
    """
    ratings = ratings.sort_values(["user", "timestamp"], kind="stable")
    place = ratings.groupby("user").cumcount(ascending=False).to_numpy()  # 0: the last one
    part = np.where(place < held_out, "test", np.where(place < 2 * held_out, "valid", "train"))
    by_count = ratings["item"][part == "train"].value_counts()
    ids = {item: at + 1 for at, item in enumerate(by_count.index)}
    # Films that training hasn't come behind: they have a row that nobody trains.
    for item in sorted(set(ratings["item"]) - set(ids)):
        ids[item] = len(ids) + 1
    item = ratings["item"].map(ids).to_numpy()
    user = ratings["user"].factorize()[0]
    begin = np.searchsorted(user, user)  # where the user's ratings begin
    before = np.arange(len(item))[:, None] - np.arange(max_length, 0, -1)
    history = np.where(before >= begin[:, None], item[before], PADDING)
    samples = Samples(user, history, item, ratings["like"].to_numpy())
    has_history = np.arange(len(item)) > begin
    rows = {
        name: np.flatnonzero((part == name) & has_history) for name in ("train", "valid", "test")
    }
    counts = np.bincount(item[part == "train"], minlength=len(ids) + 1)
    seen = {name: [item[begin[row] : row] for row in rows[name]] for name in ("valid", "test")}
    parts = {name: samples.part(its_rows) for name, its_rows in rows.items()}
    return Sequences(user[-1] + 1, len(ids) + 1, counts, **parts, seen=seen)
