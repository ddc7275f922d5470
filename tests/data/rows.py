"""Rows and schemas that the tests of batches share."""

import numpy as np
import pandas as pd
import tensorflow as tf

from merlin_embeddings.data import Column, Domain

SCHEMA = [
    Column("user", ("categorical",), "int64", domain=Domain("user", 0, 999)),
    Column("item", ("categorical",), "int32", domain=Domain("item", 0, 49)),
    Column(
        "tags", ("categorical",), "int64", True, value_count=(0, 5), domain=Domain("tag", 0, 19)
    ),
    Column("scores", ("continuous",), "float32", True, value_count=(0, None)),
    Column("age", ("continuous",), "float32"),
    Column("price", ("continuous",), "float64"),
    Column("vector", ("embedding",), "float32", True, value_count=(3, 3)),
    Column("click", ("binary_classification", "target"), "int8"),
]


def frame(rows, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, rows)
    return pd.DataFrame(
        {
            "user": np.arange(rows) % 1000,
            "item": rng.integers(0, 50, rows).astype("int32"),
            "tags": [rng.integers(0, 20, n) for n in lengths],
            "scores": [rng.normal(size=n).astype("float32") for n in lengths],
            "age": rng.normal(size=rows).astype("float32"),
            "price": rng.normal(size=rows),
            "vector": list(rng.normal(size=(rows, 3)).astype("float32")),
            "click": rng.integers(0, 2, rows).astype("int8"),
        }
    )


def collect(dataset):
    """All rows of a dataset of batches: sizes, and by column a list of Python values."""
    sizes, columns = [], {}
    for batch in dataset:
        parts = batch if isinstance(batch, tuple) else (batch,)
        found = dict(parts[0])
        for target in parts[1:]:
            found.update(target if isinstance(target, dict) else {"target": target})
        lengths = {int(column.shape[0]) for column in found.values()}
        assert len(lengths) == 1
        sizes += lengths
        for name, column in found.items():
            rows = column.to_list() if isinstance(column, tf.RaggedTensor) else column.numpy()
            columns.setdefault(name, []).extend(np.asarray(row).tolist() for row in rows)
    return sizes, columns


def plain(frame, names=None):
    """The same of a frame, float32 as it is kept there."""
    return {name: [np.asarray(value).tolist() for value in frame[name]] for name in names or frame}
