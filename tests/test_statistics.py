"""What tables tell of their id maps, against counting by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.test_callbacks import scalars

WHATS = ("occupancy", "hit_rate", "oov_share", "admitted", "evicted", "overflowed")


def model_of(ids=None, user_ids=None, **options):
    tables = {
        "item": me.TableConfig("item", None, 4, ids=ids or me.ids.ManagedCollision(32, "lru")),
        "user": me.TableConfig("user", 9, 2, ids=user_ids),
    }
    features = {name: me.FeatureConfig(name, table) for name, table in tables.items()}
    symbols = {name: keras.Input((2,), dtype="int64", name=name) for name in features}
    vectors = me.layers.Embeddings(features, name="tables")(symbols)
    joined = keras.layers.Concatenate()(list(vectors.values()))
    model = keras.Model(symbols, keras.layers.Dense(1)(joined))
    metrics = [me.metrics.TableStatistics(model)]
    model.compile(me.optimizers.Adagrad(0.1), "mse", metrics=metrics, **options)
    return model


class Counted:
    """A map that counts as the tables do: each step's hits first, then who comes."""

    def __init__(self, capacity=32, admit_after=1):
        self.capacity, self.admit_after = capacity, admit_after
        self.known, self.sightings = set(), {}

    def epoch(self, ids, batch):
        looked_up = hits = admitted = without = 0
        for at in range(0, len(ids), batch):
            step = ids[at : at + batch].ravel().tolist()
            looked_up += len(step)
            hits += sum(id in self.known for id in step)
            for id in sorted(set(step) - self.known):
                self.sightings[id] = self.sightings.get(id, 0) + step.count(id)
                if self.sightings[id] >= self.admit_after:
                    self.known.add(id)
                    admitted += 1
                else:
                    without += step.count(id)
        return {
            "occupancy": len(self.known) / self.capacity,
            "hit_rate": hits / looked_up,
            "oov_share": without / looked_up,
            "admitted": admitted,
            "evicted": 0,
            "overflowed": 0,
        }


def data_of(ids):
    ids = np.asarray(ids)
    return {"item": ids, "user": np.zeros_like(ids)}, np.ones(len(ids))


@pytest.mark.parametrize("admit_after", [1, 3])
@pytest.mark.parametrize("eagerly", [False, True])
def test_metric_by_epoch(admit_after, eagerly):
    ids = np.random.default_rng(1).integers(-(2**62), 2**62, 12)[
        np.random.default_rng(2).integers(0, 12, (6, 2))
    ]
    spec = me.ids.ManagedCollision(32, "lru", admit_after=admit_after)
    model = model_of(spec, run_eagerly=eagerly)
    logs = model.fit(
        *data_of(ids), batch_size=2, epochs=3, shuffle=False, verbose=0
    ).history  # fmt: skip
    oracle = Counted(admit_after=admit_after)
    expected = [oracle.epoch(ids, 2) for _ in range(3)]
    for what in WHATS:
        wanted = [epoch[what] for epoch in expected]
        np.testing.assert_allclose(logs[f"item_{what}"], wanted, rtol=1e-6, err_msg=what)
    assert not any(name.startswith("user_") for name in logs)  # its rows don't move


def test_evictions_are_counted():
    model = model_of(me.ids.ManagedCollision(16, "lru"))
    first, then = np.arange(16).reshape(8, 2), 100 + np.arange(8).reshape(4, 2)
    model.fit(*data_of(first), batch_size=8, verbose=0)
    logs = model.fit(*data_of(then), batch_size=4, verbose=0).history
    assert logs["item_evicted"] == [8] and logs["item_admitted"] == [8]
    assert logs["item_occupancy"] == [1]


def test_evaluation_counts_nothing():
    model = model_of()
    x, y = data_of([[1, 2], [3, 4]])
    model.fit(x, y, verbose=0)
    logs = model.evaluate(x, y, verbose=0, return_dict=True)
    assert logs["item_occupancy"] == pytest.approx(4 / 32)
    assert math.isnan(logs["item_hit_rate"]) and logs["item_admitted"] == 0


def test_two_tables_of_one_name_have_longer_names():
    layers = [
        me.layers.Embeddings(
            [me.FeatureConfig("f", me.TableConfig("t", None, 2, ids=me.ids.ManagedCollision(16)))],
            name=name,
        )
        for name in ("a", "b")
    ]
    for layer in layers:
        layer.build()
    found = me.metrics.TableStatistics(layers).result()
    assert sorted(found) == sorted(f"{path}/t_{what}" for path in "ab" for what in WHATS)


def test_metric_of_a_loaded_model_has_nothing_to_tell(tmp_path):
    model = model_of()
    x, y = data_of([[1, 2], [3, 4]])
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not any(name.startswith("item_") for name in loaded.fit(x, y, verbose=0).history)
    assert not me.metrics.TableStatistics().result()


def test_callback_writes_what_happened_since_the_last_report(tmp_path):
    ids = np.array([[1, 2], [2, 3], [3, 4], [1, 4]])
    model = model_of()
    board = me.callbacks.TableStatistics(tmp_path, update_freq=1)
    model.fit(*data_of(ids), batch_size=1, shuffle=False, verbose=0, callbacks=[board])
    found = scalars(tmp_path / "tables")
    at = "tables/item/ids"
    assert set(found) == {f"{at}/{what}" for what in WHATS}
    assert found[f"{at}/admitted"] == {1: 2, 2: 1, 3: 1, 4: 0}
    assert found[f"{at}/hit_rate"] == {1: 0, 2: 0.5, 3: 0.5, 4: 1}
    occupied = {step: n / 32 for step, n in {1: 2, 2: 3, 3: 4, 4: 4}.items()}
    assert found[f"{at}/occupancy"] == pytest.approx(occupied)
    assert board.latest[f"{at}/hit_rate"] == 1


def test_both_callbacks_share_a_folder(tmp_path):
    callbacks = [
        me.callbacks.TableStatistics(tmp_path),
        me.callbacks.TableSummaries(tmp_path),
    ]
    model = model_of()
    model.fit(*data_of([[1, 2], [3, 4]]), verbose=0, callbacks=callbacks)
    found = scalars(tmp_path / "tables")
    assert "tables/item/ids/hit_rate" in found and "tables/user/row_norm/mean" in found


def test_tables_whose_rows_stay_have_nothing_to_tell(tmp_path):
    layer = me.layers.Embedding(9, 2, name="fixed")
    layer.build()
    with pytest.raises(ValueError, match="'fixed' has no table whose rows move"):
        me.metrics.TableStatistics(layer)
    model = keras.Sequential([keras.Input((2,), dtype="int64"), layer])
    model.compile(me.optimizers.SGD(0.1), "mse")
    with pytest.raises(ValueError, match="has no table whose rows move"):
        model.fit(
            np.zeros((2, 2), int),
            np.zeros((2, 2, 2)),
            verbose=0,
            callbacks=[me.callbacks.TableStatistics(tmp_path)],
        )
    with pytest.raises(ValueError, match="update_freq=0"):
        me.callbacks.TableStatistics(tmp_path, 0)


def test_a_layer_that_is_not_built_is_named():
    layer = me.layers.Embedding(None, 2, ids=me.ids.ManagedCollision(16), name="early")
    with pytest.raises(ValueError, match=r"'early' has no table .* build it first"):
        me.metrics.TableStatistics(layer)


def test_the_numbers_cost_a_step_no_pass_over_the_table():
    """Ops of the step that read a whole array of the map, but for the map's own, are none."""
    metric = me.metrics.TableStatistics(model := model_of(me.ids.ManagedCollision(4096)))
    graph = tf.function(metric.result).get_concrete_function().graph
    large = [
        tensor.name
        for op in graph.get_operations()
        for tensor in op.outputs
        if tensor.shape.rank and (tensor.shape.num_elements() or 0) > 1000
    ]
    assert large == [] and model.built
