"""A small layer over `tables.lookup`, and each optimizer beside its rule in numpy."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat, tables
from merlin_embeddings.config import TableConfig
from tests.optimizers import numpy_rules


class Lookups(keras.layers.Layer):
    """Looks ids up in tables; several calls may use one table.

    `configs`: the tables. `wanted`: (table name, combiner) for each input.
    """

    def __init__(self, configs, wanted, **kwargs):
        super().__init__(**kwargs)
        self.supports_jit = False
        self.configs = configs
        self.wanted = wanted

    def build(self, *_):
        add_weight = functools.partial(compat.add_weight, self)
        self.by_name = {
            config.name: tables.build(config, config.vocabulary_size, add_weight)
            for config in self.configs
        }
        self.built = True

    @tf.autograph.experimental.do_not_convert
    def call(self, inputs, training=None):
        requests = []
        for (name, combiner), given in zip(self.wanted, inputs, strict=True):
            lines, weights, splits = given if isinstance(given, tuple) else (given, None, None)
            route = types.SimpleNamespace(
                strict=False,
                lines=tf.reshape(tf.cast(lines, tf.int64), [-1]),
                weights=weights,
                row_splits=splits,
                hotness=lines.shape[1] if splits is None else None,
            )
            requests.append(tables.Request(self.by_name[name], route, combiner, name))
        return tables.lookup(requests)

    def compute_output_shape(self, shapes):
        dims = {config.name: config.embedding_dim for config in self.configs}
        return [(s[0], dims[name]) for (name, _), s in zip(self.wanted, shapes, strict=True)]


@pytest.fixture
def lookups():
    """Makes a built `Lookups` layer: lookups({"item": (rows, dim)}, [("item", "sum")])."""

    def make(shapes, wanted, **config):
        configs = [
            TableConfig(name, rows, dim, **{"seed": 1, **config})
            for name, (rows, dim) in shapes.items()
        ]
        layer = Lookups(configs, wanted, dtype=config.get("policy", "float32"))
        layer.build()
        return layer

    return make


@pytest.fixture(params=list(numpy_rules.pairs()))
def rule(request):
    """(make optimizer, numpy rule), one after another."""
    return numpy_rules.pairs()[request.param]


@pytest.fixture(scope="session")
def rules():
    """(make optimizer, numpy rule) by name."""
    return numpy_rules.pairs()


@pytest.fixture
def pooled_gradient():
    """The gradient of sum(pooled * cotangent) towards the table, in numpy.

    pooled_gradient(table [R, D], bags: list of lists of rows, weights alike or None, combiner,
    cotangent [B, D]) -> (gradient [R, D], rows seen).
    """

    def compute(table, bags, weights, combiner, cotangent):
        gradient, seen = np.zeros(table.shape, np.float64), set()
        at = 0
        for b, bag in enumerate(bags):
            own = [1.0] * len(bag) if weights is None else weights[b]
            kept = [(r, w) for r, w in zip(bag, own, strict=True) if r >= 0]
            seen |= {r for r, _ in kept}
            total = sum(w for _, w in kept)
            root = np.sqrt(sum(w * w for _, w in kept))
            if combiner == "max" and kept:
                vectors = np.stack([table[r] for r, _ in kept])
                for d, winner in enumerate(vectors.argmax(0)):
                    gradient[kept[winner][0], d] += cotangent[b, d]
            for place, (r, w) in enumerate(zip(bag, own, strict=True)):
                if r < 0 or combiner == "max":
                    continue
                if combiner is None:
                    gradient[r] += cotangent[at + place]
                else:
                    share = {"sum": 1.0, "mean": total, "sqrtn": root}[combiner]
                    gradient[r] += w / share * cotangent[b]
            at += len(bag)
        return gradient, sorted(seen)

    return compute
