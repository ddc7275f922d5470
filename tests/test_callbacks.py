"""TableSummaries, read back from the event files."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me


def scalars(folder):
    """{name: {step: value}} of all event files in a folder."""
    found = {}
    for path in sorted(Path(folder).glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                number = tf.make_ndarray(value.tensor)
                found.setdefault(value.tag, {})[event.step] = float(number)
    return found


def model_of(rows=10, optimizer=None, **options):
    item, user = me.TableConfig("item", rows, 4, seed=1), me.TableConfig("user", 5, 2, seed=2)
    features = {
        "item": me.FeatureConfig("item", item, combiner="sum"),
        "user": me.FeatureConfig("user", user, combiner="sum"),
    }
    symbols = {name: keras.Input((2,), dtype="int64", name=name) for name in features}
    vectors = me.layers.Embeddings(features, name="tables")(symbols)
    joined = keras.layers.Concatenate()([vectors["item"], vectors["user"]])
    model = keras.Model(symbols, keras.layers.Dense(1, kernel_initializer="ones")(joined))
    model.compile(optimizer or me.optimizers.SGD(0.1), "mse", **options)
    return model


# Two batches of two an epoch: rows 1, 2, 3 of items, then 3, 4; users 0 and 1, then 0.
ITEMS = np.array([[1, 2], [2, 3], [3, 3], [4, 4]])
USERS = np.array([[0, 0], [1, 1], [0, 0], [0, 0]])
DATA = dict(x={"item": ITEMS, "user": USERS}, y=np.full((4, 1), 5.0), batch_size=2, shuffle=False)


def fit(model, summaries, epochs=1, **options):
    model.fit(**DATA, epochs=epochs, verbose=0, callbacks=[summaries], **options)


@pytest.mark.parametrize("optimizer", [me.optimizers.SGD, keras.optimizers.SGD])
def test_by_epoch(tmp_path, optimizer):
    model = model_of(optimizer=optimizer(0.1))
    fit(model, me.callbacks.TableSummaries(tmp_path), epochs=2)
    found = scalars(tmp_path / "tables")
    assert len(found) == 2 * 5
    for name, table in model.get_layer("tables").tables.items():
        norms = np.linalg.norm(table.variable.numpy(), axis=1)
        at = f"tables/{name}/row_norm"
        assert found[f"{at}/mean"][1] == pytest.approx(norms.mean(), rel=1e-5)
        assert found[f"{at}/max"][1] == pytest.approx(norms.max(), rel=1e-5)
    expected = {"item": (0.4, 4.0), "user": (0.4, 2.0)}
    for name, (share, number) in expected.items():
        at = f"tables/{name}/rows_seen"
        assert found[f"{at}/share"] == pytest.approx({0: share, 1: share})
        assert found[f"{at}/number"] == pytest.approx({0: number, 1: number})
        assert found[f"{at}/lately"] == pytest.approx({0: share, 1: share})


def test_by_batches(tmp_path):
    fit(model_of(), me.callbacks.TableSummaries(tmp_path, "batch"), epochs=2)
    found = scalars(tmp_path / "tables")
    item = {name.rpartition("/")[2]: v for name, v in found.items() if "item/rows_seen" in name}
    assert item["number"] == pytest.approx({1: 3, 2: 4, 3: 4, 4: 4})
    assert item["lately"] == pytest.approx({1: 0.3, 2: 0.2, 3: 0.3, 4: 0.2})
    assert found["tables/user/rows_seen/lately"] == pytest.approx({1: 0.4, 2: 0.2, 3: 0.4, 4: 0.2})


@pytest.mark.parametrize("steps_per_execution, steps", [(1, [3, 6]), (2, [4, 8])])
def test_every_third_batch(tmp_path, steps_per_execution, steps):
    model = model_of(steps_per_execution=steps_per_execution)
    fit(model, me.callbacks.TableSummaries(tmp_path, 3), epochs=len(steps) * 2)
    found = scalars(tmp_path / "tables")["tables/item/row_norm/mean"]
    assert sorted(found)[: len(steps)] == steps


def test_a_sample_of_a_table_estimates_it(tmp_path):
    rows, seen, sample = 4000, 1000, 400
    model = model_of(rows=rows)
    ids = np.random.default_rng(0).permutation(rows)[:seen].reshape(-1, 2)
    summaries = me.callbacks.TableSummaries(tmp_path, rows=sample)
    x = {"item": ids, "user": np.zeros_like(ids)}
    model.fit(x, np.full((len(ids), 1), 5.0), batch_size=100, verbose=0, callbacks=[summaries])
    # Of 400 rows about 100 were seen, give or take 9: five of those are more than a bad seed's.
    assert abs(summaries.latest["tables/item/rows_seen/number"] - seen) < 5 * 9 * rows / sample
    norms = np.linalg.norm(model.get_layer("tables").tables["item"].variable.numpy(), axis=1)
    mean = summaries.latest["tables/item/row_norm/mean"]
    assert abs(mean - norms.mean()) < 5 * norms.std() / np.sqrt(sample)
    assert mean != pytest.approx(norms.mean(), rel=1e-6)  # it was a sample
    assert summaries.latest["tables/user/rows_seen/number"] == 1


def test_only_the_sample_is_read(tmp_path, monkeypatch):
    read = []
    model = model_of(rows=100_000)
    kind = type(model.get_layer("tables").tables["item"].variable.value)
    original = kind.sparse_read

    def counted(variable, rows, **kwargs):
        read.append(int(tf.size(rows)))
        return original(variable, rows, **kwargs)

    monkeypatch.setattr(kind, "sparse_read", counted)
    fit(model, me.callbacks.TableSummaries(tmp_path, rows=64), epochs=2)
    # Before training and after each epoch, of each table.
    assert sorted(read) == [5] * 3 + [64] * 3


def test_beside_the_tensorboard_of_keras(tmp_path):
    model = model_of()
    board = keras.callbacks.TensorBoard(tmp_path)
    summaries = me.callbacks.TableSummaries(tmp_path)
    model.fit(**DATA, verbose=0, callbacks=[board, summaries])
    assert {path.name for path in tmp_path.iterdir()} == {"tables", "train"}
    assert "tables/item/row_norm/mean" in scalars(tmp_path / "tables")


def test_a_second_fit_begins_anew(tmp_path):
    model = model_of()
    summaries = me.callbacks.TableSummaries(tmp_path)
    fit(model, summaries)
    x = {"item": ITEMS[:1], "user": USERS[:1]}
    model.fit(x, np.full((1, 1), 7.0), verbose=0, callbacks=[summaries])
    assert summaries.latest["tables/item/rows_seen/number"] == pytest.approx(2)


@pytest.mark.parametrize("freq", [0, -1, "week", 1.5])
def test_frequencies_that_are_none(tmp_path, freq):
    with pytest.raises(ValueError, match=rf"update_freq={freq!r}; it must be 'epoch', 'batch' or"):
        me.callbacks.TableSummaries(tmp_path, freq)


def test_samples_that_are_none(tmp_path):
    with pytest.raises(ValueError, match="rows=0; a sample has at least one row"):
        me.callbacks.TableSummaries(tmp_path, rows=0)


def test_a_model_without_tables(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)], name="plain")
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="model 'plain' has no table of merlin_embeddings"):
        model.fit(
            np.ones((2, 2)),
            np.ones(2),
            verbose=0,
            callbacks=[me.callbacks.TableSummaries(tmp_path)],
        )


def test_a_model_that_is_not_built_yet(tmp_path):
    model = keras.Sequential([me.layers.Embedding(9, 4, combiner="sum")])
    model.compile("sgd", "mse")
    summaries = me.callbacks.TableSummaries(tmp_path)
    with pytest.raises(ValueError, match="no table of merlin_embeddings yet; build it before fit"):
        model.fit(ITEMS, np.ones((4, 4)), verbose=0, callbacks=[summaries])
