"""MovieLens-100k: fetch, features, splits and batches.

The ratings come from the wheel of RecBole 1.2.1 on PyPI, which carries MovieLens-100k
(F. M. Harper and J. A. Konstan, "The MovieLens Datasets", ACM TiiS 5(4), 2015) as
tab-separated files. They are fetched when the example first runs and kept in a cache folder;
GroupLens allows research use and no redistribution.
"""

import csv
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import tensorflow as tf

PACKAGE = "recbole==1.2.1"
FOLDER = "recbole/dataset_example/ml-100k"
SHA256 = {
    "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
    "ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
    "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
}
CACHE = Path(__file__).parent / "cache" / "ml-100k"
LIKED = 4  # stars from which a rating counts as a like


class FetchError(RuntimeError):
    """The ratings could not be fetched, or are not the ones expected."""


def fetch(cache: Path = CACHE) -> Path:
    """Returns the folder that holds the three files, and downloads them when they are not there."""
    cache = Path(cache)
    if not all((cache / name).exists() for name in SHA256):
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            wheel = _download(Path(scratch), cache)
            with zipfile.ZipFile(wheel) as archive:
                for name in SHA256:
                    copy = Path(archive.extract(f"{FOLDER}/{name}", scratch))
                    copy.replace(cache / name)
    for name, expected in SHA256.items():
        found = hashlib.sha256((cache / name).read_bytes()).hexdigest()
        if found != expected:
            raise FetchError(
                f"{cache / name} has the sha256 {found}, not {expected}: delete the file to have "
                "it fetched again."
            )
    return cache


def _download(folder: Path, cache: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), PACKAGE]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise FetchError(
            f"MovieLens-100k could not be fetched: `{' '.join(pip)}` ended with code "
            f"{done.returncode}.\n{done.stderr.strip()}\nTo go on without a network, put "
            f"{', '.join(SHA256)} from {FOLDER} of that wheel into {cache}."
        )
    return wheels[0]


@dataclass(frozen=True)
class Ratings:
    """N ratings as columns: who the user is, what the film is, when it was rated.

    A film's genres are a bag of 1 to 6: they are kept once a film, and a batch gathers them by
    film. Genre ids start at 1; 0 is left for padding.
    """

    one_hot: tuple[str, ...]  # the F features with one id a rating
    ids: np.ndarray  # [N, F] int64, a column a feature
    genres: tf.RaggedTensor  # [films, 1..6] int64
    sizes: dict[str, int]  # how many ids each feature has, "genres" too
    numbers: np.ndarray  # [N, 2] float32: the user's age, the film's year
    labels: np.ndarray  # [N, 1] float32: 1 when liked
    timestamps: np.ndarray  # [N] int64, seconds

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows) -> tuple[dict, tf.Tensor]:
        """The model's inputs and the labels `[B, 1]` of some rows `[B]`.

        An input is `[B]` for a one-hot feature, ragged `[B, 1..6]` for the genres and `[B, 2]`
        for the numbers.
        """
        inputs = dict(zip(self.one_hot, tf.unstack(tf.gather(self.ids, rows), axis=1), strict=True))
        inputs["genres"] = tf.gather(self.genres, inputs["item"])
        inputs["numbers"] = tf.gather(self.numbers, rows)
        return inputs, tf.gather(self.labels, rows)


def load(cache: Path = CACHE) -> Ratings:
    """All 100,000 ratings, in the order of the file."""
    folder = fetch(cache)
    films = _read(folder / "ml-100k.item")
    ratings = _read(folder / "ml-100k.inter")
    ratings = ratings.merge(_read(folder / "ml-100k.user"), how="left", on="user_id")
    ratings = ratings.merge(films, how="left", on="item_id")
    moment = pd.to_datetime(ratings["timestamp"], unit="s")

    ids = pd.DataFrame(
        {
            "user": ratings["user_id"],
            "item": ratings["item_id"],
            "age": ratings["age"],
            "gender": _codes(ratings["gender"]),
            "occupation": _codes(ratings["occupation"]),
            "zip": _codes(ratings["zip_code"]),
            "hour": moment.dt.hour,
            "weekday": moment.dt.weekday,
        }
    )
    # [films, genres] of 0 / 1; row i - 1 belongs to film i.
    classes = films.sort_values("item_id")["class"].str.get_dummies(" ")
    bags = [[], *(1 + np.flatnonzero(film) for film in classes.to_numpy())]
    year = pd.to_numeric(ratings["release_year"], errors="coerce")

    return Ratings(
        one_hot=tuple(ids.columns),
        ids=ids.to_numpy(np.int64),
        genres=tf.ragged.constant(bags, dtype=tf.int64),
        sizes={**(1 + ids.max()).to_dict(), "genres": 1 + classes.shape[1]},
        numbers=np.stack([_standard(ratings["age"]), _standard(year)], axis=1),
        labels=(ratings["rating"] >= LIKED).to_numpy(np.float32)[:, None],
        timestamps=ratings["timestamp"].to_numpy(np.int64),
    )


def _read(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE)
    return table.rename(columns=lambda name: name.split(":")[0])  # headers read `name:kind`


def _codes(column: pd.Series) -> pd.Series:
    """0, 1, 2 ... for the values of a column in sorted order."""
    return column.astype("category").cat.codes


def _standard(column: pd.Series) -> np.ndarray:
    """Mean 0 and variance 1; 0 where the value is missing."""
    return ((column - column.mean()) / column.std()).fillna(0).to_numpy(np.float32)


@dataclass(frozen=True)
class Split:
    """Row numbers of three parts: one trains, one chooses the epoch, one only judges."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


def split(ratings: Ratings, by: str = "random", seed: int = 0) -> Split:
    """72% / 8% / 20% of the ratings: at random, or by time with the latest ones as the test."""
    if by == "random":
        order = np.random.default_rng(seed).permutation(len(ratings))
    elif by == "time":
        order = np.argsort(ratings.timestamps, kind="stable")
    else:
        raise ValueError(f"A split is 'random' or 'time', not {by!r}.")
    return Split(*np.split(order, [len(order) * 72 // 100, len(order) * 80 // 100]))


def batches(ratings: Ratings, rows, batch_size: int = 8192, shuffle_seed: int | None = None):
    """A `tf.data.Dataset` of `(inputs, labels)`.

    What is shuffled and cut into batches is row numbers, all of them at once; a batch is then one
    gather. With a seed every epoch has another order, the same in every run.
    """
    rows = tf.constant(rows, tf.int64)
    order = tf.data.Dataset.from_tensors(rows)
    if shuffle_seed is not None:
        seeds = tf.data.Dataset.random(shuffle_seed, rerandomize_each_iteration=True).take(1)
        order = seeds.map(lambda seed: tf.random.experimental.stateless_shuffle(rows, [seed, 0]))
    batches_an_epoch = tf.data.experimental.assert_cardinality(-(-len(rows) // batch_size))
    return order.rebatch(batch_size).apply(batches_an_epoch).map(ratings.take).prefetch(2)
