"""A small layer over `tables.lookup`, and the rules once more in numpy."""

import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings import tables
from merlin_embeddings.config import TableConfig


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
        self.by_name = {
            config.name: tables.build(config, config.vocabulary_size, self.add_weight)
            for config in self.configs
        }
        self.built = True

    def call(self, inputs):
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


class Rule:
    """One rule in numpy, float64, dense: rows without a gradient are left out by the caller."""

    def __init__(self, kind, learning_rate, slots, fills, **hyper):
        self.kind = kind
        self.learning_rate = learning_rate
        self.slot_names = slots
        self.fills = fills
        self.hyper = types.SimpleNamespace(**hyper)

    def start(self, weights):
        return {
            name: np.full(len(weights) if self.kind == "rowwise" else weights.shape, fill)
            for name, fill in zip(self.slot_names, self.fills, strict=True)
        }

    def __call__(self, weights, gradient, state, rows, step, decay=0.0):
        """Updates `weights` and `state` in place at `rows`; step counts from 1."""
        lr, h, w, g = self.learning_rate, self.hyper, weights[rows], gradient[rows]
        w = w - w * decay * lr
        if self.kind == "sgd":
            w = w - lr * g
        elif self.kind in ("momentum", "nesterov"):
            v = h.momentum * state["velocity"][rows] - lr * g
            state["velocity"][rows] = v
            w = w + v if self.kind == "momentum" else w + h.momentum * v - lr * g
        elif self.kind == "adagrad":
            a = state["accumulator"][rows] + g**2
            state["accumulator"][rows] = a
            w = w - lr * g / np.sqrt(a + h.epsilon)
        elif self.kind == "rowwise":
            a = state["accumulator"][rows] + (g**2).mean(1)
            state["accumulator"][rows] = a
            w = w - lr * g / (np.sqrt(a) + h.epsilon)[:, None]
        else:
            m = h.beta_1 * state["momentum"][rows] + (1 - h.beta_1) * g
            v = h.beta_2 * state["velocity"][rows] + (1 - h.beta_2) * g**2
            state["momentum"][rows], state["velocity"][rows] = m, v
            m_hat, v_hat = m / (1 - h.beta_1**step), v / (1 - h.beta_2**step)
            # Keras adds epsilon before the correction of v: "epsilon hat" of the paper.
            root = np.sqrt(v_hat) + h.epsilon / np.sqrt(1 - h.beta_2**step)
            w = w - lr * m_hat / root
        weights[rows] = w


def pairs():
    """Each optimizer beside its numpy rule."""
    opt = me.optimizers
    return {
        "sgd": (lambda **k: opt.SGD(0.1, **k), Rule("sgd", 0.1, (), ())),
        "momentum": (
            lambda **k: opt.SGD(0.1, momentum=0.9, **k),
            Rule("momentum", 0.1, ("velocity",), (0.0,), momentum=0.9),
        ),
        "nesterov": (
            lambda **k: opt.SGD(0.1, momentum=0.9, nesterov=True, **k),
            Rule("nesterov", 0.1, ("velocity",), (0.0,), momentum=0.9),
        ),
        "adagrad": (
            lambda **k: opt.Adagrad(0.1, initial_accumulator_value=0.2, **k),
            Rule("adagrad", 0.1, ("accumulator",), (0.2,), epsilon=1e-7),
        ),
        "rowwise_adagrad": (
            lambda **k: opt.RowwiseAdagrad(0.1, epsilon=1e-6, **k),
            Rule("rowwise", 0.1, ("accumulator",), (0.0,), epsilon=1e-6),
        ),
        "adam": (
            lambda **k: opt.Adam(0.1, beta_2=0.99, epsilon=1e-5, **k),
            Rule(
                "adam",
                0.1,
                ("momentum", "velocity"),
                (0.0, 0.0),
                beta_1=0.9,
                beta_2=0.99,
                epsilon=1e-5,
            ),
        ),
    }


@pytest.fixture(params=["sgd", "momentum", "nesterov", "adagrad", "rowwise_adagrad", "adam"])
def rule(request):
    """(make optimizer, numpy rule), one after another."""
    return pairs()[request.param]


@pytest.fixture(scope="session")
def rules():
    """(make optimizer, numpy rule) by name."""
    return pairs()


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
