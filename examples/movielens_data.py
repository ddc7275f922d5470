"""MovieLens-100k: fetched, as one table, and split.

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
from pathlib import Path

import numpy as np
import pandas as pd

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


def load(cache: Path = CACHE) -> pd.DataFrame:
    """All 100,000 ratings in the order of the file, each with what is known of user and film."""
    folder = fetch(cache)
    ratings = _read(folder / "ml-100k.inter")
    ratings = ratings.merge(_read(folder / "ml-100k.user"), how="left", on="user_id")
    ratings = ratings.merge(_read(folder / "ml-100k.item"), how="left", on="item_id")
    moment = pd.to_datetime(ratings["timestamp"], unit="s")
    return pd.DataFrame(
        {
            "user": ratings["user_id"],
            "item": ratings["item_id"],
            "genres": ratings["class"].str.split(),  # 1 to 6 of a film
            "gender": ratings["gender"],
            "occupation": ratings["occupation"],
            "zip": ratings["zip_code"],
            "hour": moment.dt.hour,
            "weekday": moment.dt.weekday,
            "age": ratings["age"],
            "year": pd.to_numeric(ratings["release_year"], errors="coerce"),
            "timestamp": ratings["timestamp"],
            "like": (ratings["rating"] >= LIKED).astype("float32"),
        }
    )


def _read(path: Path) -> pd.DataFrame:
    table = pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE)
    return table.rename(columns=lambda name: name.split(":")[0])  # headers read `name:kind`


def split(ratings: pd.DataFrame, by: str = "random", seed: int = 0) -> dict[str, pd.DataFrame]:
    """72% that train, 8% that choose the epoch and 20% that only judge.

    At random, or by time with the latest ratings as the test.
    """
    if by == "random":
        order = np.random.default_rng(seed).permutation(len(ratings))
    elif by == "time":
        order = np.argsort(ratings["timestamp"].to_numpy(), kind="stable")
    else:
        raise ValueError(f"A split is 'random' or 'time', not {by!r}.")
    parts = np.split(order, [len(order) * 72 // 100, len(order) * 80 // 100])
    return {
        name: ratings.iloc[rows].reset_index(drop=True)
        for name, rows in zip(("train", "valid", "test"), parts, strict=True)
    }
