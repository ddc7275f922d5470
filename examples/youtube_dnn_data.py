"""MovieLens-100k as sequences: what users met, in order, the last of it held out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

PADDING = 0  # items are 1, 2, ... in falling order of their frequency in training


@dataclass(frozen=True)
class Samples:
    """N times: a user, the items met before, the next one, and whether it was liked."""

    user: np.ndarray  # [N]
    history: np.ndarray  # [N, L], the most recent item last, padded in front
    liked: np.ndarray  # [N, L], whether each of them was liked
    item: np.ndarray  # [N]
    like: np.ndarray  # [N], 1 for 4 stars or more
    seen: list[np.ndarray]  # N of them: all items that the user met before

    def __len__(self) -> int:
        return len(self.user)


@dataclass(frozen=True)
class Sequences:
    """Users' items in the order of time.

    The last `held_out` items of a user are tested on, and as many before them choose the epoch.
    """

    users: int
    rows: int  # of a table of items, padding included
    train: Samples
    valid: Samples
    test: Samples


def sequences(ratings: pd.DataFrame, held_out: int = 1, max_length: int = 20) -> Sequences:
    """Samples of all users, each item a target once there is a history before it.

    Args:
        ratings: of `movielens_data.load`.
        held_out: how many of a user's items are in `test`, and in `valid`.
        max_length: L, items of a history.
    """
    ratings = ratings.sort_values(["user", "timestamp"], kind="stable")
    place = ratings.groupby("user").cumcount(ascending=False).to_numpy()  # 0: the last one
    parts = np.where(place < held_out, "test", np.where(place < 2 * held_out, "valid", "train"))
    by_count = ratings["item"][parts == "train"].value_counts()
    # Films that training hasn't come behind: they have a row that nobody trains.
    unknown = sorted(set(ratings["item"]) - set(by_count.index))
    ids = {item: at for at, item in enumerate([*by_count.index, *unknown], start=1)}
    item, like = ratings["item"].map(ids).to_numpy(), ratings["like"].to_numpy()
    user = ratings["user"].factorize()[0]
    begin = np.searchsorted(user, user)  # where the user's ratings begin
    before = np.arange(len(item))[:, None] - np.arange(max_length, 0, -1)
    there = before >= begin[:, None]
    history = np.where(there, item[before], PADDING)
    liked = there & (like[before] == 1)

    def samples(part: str) -> Samples:
        rows = np.flatnonzero((parts == part) & (np.arange(len(item)) > begin))
        seen = [item[begin[row] : row] for row in rows]
        return Samples(user[rows], history[rows], liked[rows], item[rows], like[rows], seen)

    return Sequences(
        users=user[-1] + 1,
        rows=len(ids) + 1,
        train=samples("train"),
        valid=samples("valid"),
        test=samples("test"),
    )
