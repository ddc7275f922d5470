"""Who needs a table of users? YouTube's DNN on MovieLens-100k, leave one out.

    python examples/youtube_dnn.py
    python examples/youtube_dnn.py --seeds 0 --epochs 3        # quicker

Users are represented by the films that they met, through the films' own table (Covington et al.,
2016), beside a two-tower model with a table of users: the same films, samples, loss, optimizer and
epochs. Retrieval learns the next film by a sampled softmax; each user's last film is then looked
for among all that they haven't seen. Ranking learns whether a user likes a film.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import movielens_data as data
import numpy as np
import tensorflow as tf
from auc import auc
from tensorflow import keras
from youtube_dnn_data import PADDING, Samples, sequences
from youtube_dnn_models import POOLINGS, TABLE, bytes_of, inputs_of, ranking, retrieval

import merlin_embeddings as me

K = 10
RANKED = 10  # of each user's last ratings, for the AUC of likes
BATCH = 1024


@dataclass(frozen=True)
class Score:
    """What a run reached, at the epoch that was best in validation."""

    measures: dict[str, float]
    bytes: int
    seconds: float  # an epoch


def arguments(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--epochs", type=int, default=6, help="of retrieval")
    parser.add_argument("--ranking-epochs", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=data.CACHE, help="folder of the ratings")
    return parser.parse_args(argv)


def retrieved(tower: keras.Model, items: me.layers.Embedding, samples: Samples) -> np.ndarray:
    """The ids `[N, K]` of the films that fit each user best, among those not seen."""
    users = tower.predict(inputs_of(tower, samples, liked=False), batch_size=1024, verbose=0)
    top = me.layers.TopK(items, K, first=PADDING + 1)
    return top(users, exclude=tf.ragged.constant(samples.seen, tf.int64))[1].numpy()


def hits(found: np.ndarray, items: np.ndarray) -> dict[str, float]:
    """Recall and NDCG of one relevant item each (a gain of 1 / log2(place + 1), place from 1)."""
    place = np.argmax(found == items[:, None], axis=1)
    hit = np.any(found == items[:, None], axis=1)
    gain = np.where(hit, 1 / np.log2(place + 2), 0)
    return {f"recall@{K}": hit.mean(), f"NDCG@{K}": gain.mean()}


def train_retrieval(kind: str, parts, seed: int, epochs: int) -> Score:
    """Trains, and tells the measures of the test at the epoch with the best NDCG in validation."""
    model, tower = retrieval(kind, parts, seed)
    items = model.get_layer("softmax").items
    best: dict = {"valid": -1.0}

    def after_epoch():
        valid = hits(retrieved(tower, items, parts.valid), parts.valid.item)[f"NDCG@{K}"]
        if valid > best["valid"]:
            best.update(
                valid=valid, test=hits(retrieved(tower, items, parts.test), parts.test.item)
            )

    seconds = fit(model, parts.train, np.zeros(len(parts.train)), epochs, after_epoch, liked=False)
    return Score(best["test"], bytes_of(model), seconds)


def train_ranking(kind: str, parts, seed: int, epochs: int) -> Score:
    """The same of likes, by the AUC in validation."""
    model = ranking(kind, parts, seed)
    best: dict = {"valid": -1.0}

    def auc_of(samples: Samples) -> float:
        inputs = inputs_of(model, samples, liked=True)
        return auc(samples.like, model.predict(inputs, 4096, verbose=0)[:, 0])

    def after_epoch():
        valid = auc_of(parts.valid)
        if valid > best["valid"]:
            best.update(valid=valid, test=auc_of(parts.test))

    seconds = fit(model, parts.train, parts.train.like, epochs, after_epoch, liked=True)
    return Score({"AUC": best["test"]}, bytes_of(model), seconds)


def fit(model, samples: Samples, targets, epochs: int, after_epoch, liked: bool) -> float:
    """Trains; returns the seconds of an epoch, the fastest, evaluation left out."""
    seconds, start = [], [0.0]

    def begin(epoch, logs):
        start[0] = time.perf_counter()

    def end(epoch, logs):
        seconds.append(time.perf_counter() - start[0])
        after_epoch()

    watch = keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=end)
    inputs = inputs_of(model, samples, liked)
    model.fit(inputs, targets, BATCH, epochs, verbose=0, callbacks=[watch])
    return min(seconds)


def table(title: str, runs: dict[str, list[Score]]) -> str:
    """A table in Markdown: means over the seeds, and the standard deviation."""
    names = list(next(iter(runs.values()))[0].measures)
    rows = [["users", *names, "tables, bytes", "seconds an epoch"]]
    for kind, scores in runs.items():
        values = [[score.measures[name] for score in scores] for name in names]
        shown = [f"{np.mean(v):.4f} ± {np.std(v):.4f}" for v in values]
        seconds = min(score.seconds for score in scores)
        rows.append([kind, *shown, f"{scores[0].bytes:,}", f"{seconds:.1f}"])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([title, "", *lines, ""])


def main(argv=None) -> int:
    options = arguments(argv)
    tf.get_logger().setLevel("ERROR")  # many models predict: each is traced, and that is fine
    try:
        ratings = data.load(options.cache)
    except data.FetchError as error:
        print(error, file=sys.stderr)
        return 2
    start = time.perf_counter()
    seeds = options.seeds
    parts = sequences(ratings)
    runs = {
        kind: [train_retrieval(kind, parts, seed, options.epochs) for seed in seeds]
        for kind in (TABLE, *POOLINGS)
    }
    print(table(f"Retrieval: the last film of {len(parts.test)} users", runs), flush=True)
    parts = sequences(ratings, held_out=RANKED)
    likes = {
        kind: [train_ranking(kind, parts, seed, options.ranking_epochs) for seed in seeds]
        for kind in (TABLE, "target attention over items")
    }
    print(table(f"Ranking: likes among the last {len(parts.test)} ratings", likes))
    print(f"{len(seeds)} seeds, {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
