"""Two towers and YoutubeDNN of merlin-models on MovieLens-100k, and their recall."""

from __future__ import annotations

from dataclasses import dataclass

import merlin.models.tf as mm
import merlin_training as training
import movielens_data as data
import numpy as np
import pandas as pd
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags
from tensorflow import keras

HISTORY = 20  # the last likes before the one to predict
BATCH = 1024
SAMPLED = 200
LIST = {"is_list": True, "is_ragged": True}


def _column(name: str, count: int, *tags, domain: str | None = None, **kwargs) -> ColumnSchema:
    properties = {"domain": {"name": domain or name, "min": 0, "max": count - 1}}
    return ColumnSchema(name, [Tags.CATEGORICAL, *tags], properties, np.int64, **kwargs)


@dataclass(frozen=True)
class Likes:
    """Users and what they liked, ids from 1.

    `train` has a row for each like with the `history` before it, but a user's last one, which is in
    `test`. `seen` are the films of a user's training likes, which aren't recommended again.
    """

    users: int
    items: int
    train: pd.DataFrame
    test: pd.DataFrame
    seen: list[np.ndarray]  # in the order of `test`


def likes_of(cache) -> Likes:
    """Leave one out: of users with at least five likes."""
    ratings = data.load(cache)
    liked = ratings[ratings["like"] > 0].sort_values("timestamp", kind="stable")
    user = liked["user"].astype("category").cat.codes.to_numpy(np.int64) + 1
    item = liked["item"].astype("category").cat.codes.to_numpy(np.int64) + 1
    train, test, seen = [], [], []
    for number in np.unique(user):
        items = item[user == number]
        if len(items) < 5:
            continue
        for at in range(1, len(items)):
            row = {
                "user": number,
                "history": items[max(0, at - HISTORY) : at],
                "item": items[at],
            }
            (test if at == len(items) - 1 else train).append(row)
        seen.append(items[:-1])
    frames = [pd.DataFrame(rows) for rows in (train, test)]
    return Likes(int(user.max()) + 1, int(item.max()) + 1, *frames, seen)


def _schema(likes: Likes, name: str) -> Schema:
    history = _column(
        "history", likes.items, Tags.USER, domain="item" if name == "youtube_dnn" else None, **LIST
    )
    item = _column("item", likes.items, Tags.ITEM, Tags.ITEM_ID)
    if name == "youtube_dnn":
        # The target is the last film of the list.
        return Schema([_column("item", likes.items, Tags.ITEM_ID, Tags.SEQUENCE, **LIST)])
    return Schema([_column("user", likes.users, Tags.USER, Tags.USER_ID), history, item])


def _frame(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    if name != "youtube_dnn":
        return rows
    whole = [np.append(a, b) for a, b in zip(rows["history"], rows["item"], strict=True)]
    return pd.DataFrame({"item": whole})


def loader(likes: Likes, name: str, rows: pd.DataFrame) -> mm.Loader:
    dataset = Dataset(_frame(rows, name), schema=_schema(likes, name))
    return mm.Loader(dataset, BATCH, shuffle=False)


def two_tower(schema: Schema, table: type):
    def tower(tag):
        return mm.Encoder(
            training.inputs(schema.select_by_tag(tag), table),
            mm.MLPBlock([64, 32], no_activation_last_layer=True),
        )

    return mm.TwoTowerModelV2(tower(Tags.USER), tower(Tags.ITEM))


def youtube_dnn(schema: Schema, table: type):
    top = mm.MLPBlock([64, training.DIM], no_activation_last_layer=True)
    return mm.YoutubeDNNRetrievalModelV2(
        schema, inputs=training.inputs(schema, table), top_block=top, num_sampled=SAMPLED
    )


MODELS = {"two_tower": two_tower, "youtube_dnn": youtube_dnn}


def _target(likes: Likes, name: str):
    if name == "youtube_dnn":
        return {"pre": mm.SequencePredictLast(schema=_schema(likes, name), target="item")}
    return {}


def start(likes: Likes, name: str, seed: int) -> dict:
    """{kind: compiled model}, all with the weights of the first."""
    schema, models, first = _schema(likes, name), {}, None
    batch = next(iter(loader(likes, name, likes.train.head(BATCH))))[0]
    for kind, (_, table, _own) in training.KINDS.items():
        keras.utils.set_random_seed(seed)
        models[kind] = model = MODELS[name](schema, table)
        optimizer = training.KINDS[kind].optimizer("adam")
        optimizer.learning_rate = 0.003
        model.compile(optimizer, metrics=[])
        model(batch, training=False)
        first = first or model
        model.set_weights(first.get_weights())
    return models


def fit(likes: Likes, name: str, model, seed: int, epochs: int) -> None:
    """Trains on the same batches in the same order for every kind.

    In one call with the rows of all epochs: merlin-models traces a model with `pre` anew in each.
    """
    orders = [
        np.random.default_rng([seed, number]).permutation(len(likes.train))
        for number in range(epochs)
    ]
    rows = likes.train.iloc[np.concatenate(orders)]
    model.fit(loader(likes, name, rows), verbose=0, **_target(likes, name))


def recall(likes: Likes, name: str, model, count: int) -> float:
    """The share of users whose last like is among the first `count` films."""
    if name == "youtube_dnn":
        rows = likes.test.assign(item=likes.test["history"].str[-1])
        rows["history"] = likes.test["history"].str[:-1]
        queries = loader(likes, name, rows)
        scores = [np.asarray(model(x, training=False)) for x, _ in queries]
        scores = np.concatenate(scores)
    else:
        users = [np.asarray(model.query_encoder(x)) for x, _ in loader(likes, name, likes.test)]
        films = (
            likes.test.head(1)
            .loc[[likes.test.index[0]] * likes.items]
            .assign(item=np.arange(likes.items))
        )
        items = [np.asarray(model.candidate_encoder(x)) for x, _ in loader(likes, name, films)]
        scores = np.concatenate(users) @ np.concatenate(items).T
    scores[:, 0] = -np.inf
    for row, films in zip(scores, likes.seen, strict=True):
        row[films] = -np.inf
    first = np.argpartition(-scores, count, axis=1)[:, :count]
    return float((first == likes.test["item"].to_numpy()[:, None]).any(axis=1).mean())
