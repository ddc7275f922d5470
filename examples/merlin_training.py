"""merlin-models on MovieLens-100k, with its own tables and with ours, from the same weights.

Runs where merlin-models does (`.venv-merlin`).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import merlin.models.tf as mm
import movielens_data as data
import numpy as np
import pandas as pd
from auc import auc
from merlin.io import Dataset
from merlin.schema import Schema, Tags
from movielens_workflow import prepare
from tensorflow import keras

import merlin_embeddings as me
import merlin_embeddings.merlin as mem

OPTIMIZERS = {
    # Stock optimizers are of merlin-models' default kind: compile("adagrad") makes the legacy one.
    "sgd": (lambda: keras.optimizers.legacy.SGD(0.5), lambda: me.optimizers.SGD(0.5)),
    "adagrad": (lambda: keras.optimizers.legacy.Adagrad(0.3), lambda: me.optimizers.Adagrad(0.3)),
    "adam": (lambda: keras.optimizers.legacy.Adam(0.001), lambda: me.optimizers.Adam(0.001)),
}


class Kind(NamedTuple):
    """What is compared: a class of tables, the one-argument change, and whose optimizer."""

    title: str
    table: type
    own_optimizer: bool

    def optimizer(self, name: str):
        return OPTIMIZERS[name][self.own_optimizer]()


KINDS = {
    "stock": Kind("mm.EmbeddingTable", mm.EmbeddingTable, False),
    "tables": Kind("merlin_embeddings, stock optimizer", mem.EmbeddingTable, False),
    "both": Kind("merlin_embeddings, our optimizer", mem.EmbeddingTable, True),
}
DIM = 16


@dataclass(frozen=True)
class Ratings:
    """The rows as ids and numbers, and what their schema says."""

    train: pd.DataFrame
    test: pd.DataFrame
    schema: Schema

    def loader(self, rows: pd.DataFrame, batch_size: int = 4096) -> mm.Loader:
        """The rows in their order, as merlin-models takes them."""
        return mm.Loader(Dataset(rows, schema=self.schema), batch_size, shuffle=False)

    def epoch(self, seed: int, number: int, batch_size: int) -> mm.Loader:
        """The training rows in an order that depends on seed and epoch alone."""
        order = np.random.default_rng([seed, number]).permutation(len(self.train))
        return self.loader(self.train.iloc[order], batch_size)


def load(folder: Path, cache: Path = data.CACHE, rows: int | None = None) -> Ratings:
    """MovieLens-100k, or its first rows, by an NVTabular workflow fitted on those that train."""
    parts = data.split(data.load(cache).head(rows or 100_000))
    prepared = prepare({"train": parts["train"], "test": parts["test"]}, folder)
    frames = [
        pd.concat(map(pd.read_parquet, sorted((folder / part).glob("*.parquet"))))
        for part in ("train", "test")
    ]
    return Ratings(*frames, prepared.schema)


def inputs(schema: Schema, table: type, aggregation: str | None = "concat"):
    return mm.InputBlockV2(schema, categorical=embeddings(schema, table), aggregation=aggregation)


def embeddings(schema: Schema, table: type):
    categorical = schema.select_by_tag(Tags.CATEGORICAL)
    return mm.Embeddings(categorical, dim=DIM, table_cls=table)


def dlrm(schema: Schema, table: type) -> mm.Model:
    return mm.DLRMModel(
        schema,
        embeddings=embeddings(schema, table),
        bottom_block=mm.MLPBlock([64, DIM]),
        top_block=mm.MLPBlock([128, 64]),
        prediction_tasks=mm.BinaryOutput("like"),
    )


def dcn(schema: Schema, table: type) -> mm.Model:
    return mm.DCNModel(
        schema,
        depth=2,
        deep_block=mm.MLPBlock([128, 64]),
        input_block=inputs(schema, table),
        prediction_tasks=mm.BinaryOutput("like"),
    )


MODELS = {"dlrm": dlrm, "dcn": dcn}


def start(ratings: Ratings, build: Callable, optimizer: str, seed: int, kinds=tuple(KINDS)):
    """{kind: compiled model}, all with the weights of the first."""
    batch = next(iter(ratings.loader(ratings.train.head(8))))[0]
    models = {}
    for name in kinds:
        keras.utils.set_random_seed(seed)
        models[name] = model = build(ratings.schema, KINDS[name].table)
        model.compile(KINDS[name].optimizer(optimizer), metrics=[])
        model(batch)
        model.set_weights(models[kinds[0]].get_weights())
    return models


def fit(ratings: Ratings, model, seed: int, epochs: int, batch_size: int) -> list[float]:
    """Trains; the seconds that each epoch took."""
    seconds = []
    for number in range(epochs):
        loader = ratings.epoch(seed, number, batch_size)
        began = time.perf_counter()
        model.fit(loader, verbose=0)
        seconds.append(time.perf_counter() - began)
    return seconds


def test_auc(ratings: Ratings, model) -> float:
    """The share of pairs of a like and another rating that the model ranks rightly."""
    loader = ratings.loader(ratings.test)
    scores = np.concatenate([np.asarray(model(x, training=False)) for x, _ in loader]).ravel()
    return auc(ratings.test["like"].to_numpy(), scores)
