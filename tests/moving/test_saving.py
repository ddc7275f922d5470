"""Files hold the rows in use, and a run that was stopped goes on as if it hadn't been."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests import fresh
from tests.either_keras import KERAS_3
from tests.moving import oracle

X = np.stack(list(oracle.stream(40, 8, 120, drift=1))).reshape(-1, 4)
Y = np.random.default_rng(1).normal(size=(len(X), 1)).astype(np.float32)


def model_of(optimizer=None, capacity=48, seed=None, dynamic=False, **ids):
    if dynamic:
        ids = me.ids.Dynamic(8, capacity, when_full="lfu")
    else:
        ids = me.ids.ManagedCollision(capacity, **{"policy": "lfu", "admit_after": 2, **ids})
    symbol = keras.Input((4,), dtype="int64")
    vectors = me.layers.Embedding(None, 3, ids=ids, combiner="mean", seed=seed)(symbol)
    model = keras.Model(symbol, keras.layers.Dense(1, kernel_initializer="ones")(vectors))
    model.compile(optimizer or me.optimizers.Adam(0.1), "mse")
    return model


def train(model, begin, end):
    model.fit(X[begin:end], Y[begin:end], batch_size=4, shuffle=False, verbose=0)


def state_of(model):
    """All that is a function of the training: rows by id, the dense part, the optimizer's."""
    table = model.layers[1].table
    rows = {}
    for entries in table.entries():
        for at, id in enumerate(entries.keys.tolist()):
            slots = {name: values[at] for name, values in entries.slots.items()}
            rows[id] = (entries.vectors[at], entries.scores[at], slots)
    statistics = {name: int(value) for name, value in table.ids.statistics().items()}
    return rows, [v.numpy() for v in model.layers[2].weights], statistics


OPTIMIZERS = {
    "adam": lambda: me.optimizers.Adam(0.1),
    "adagrad": lambda: me.optimizers.Adagrad(0.1, initial_accumulator_value=0.3),
    "split": lambda: me.optimizers.Split(
        dense=keras.optimizers.Adam(0.01), embeddings=me.optimizers.RowwiseAdagrad(0.1)
    ),
}


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("adam", {"policy": me.ids.LFU(half_life=5)}),
        ("adagrad", {"oov_rows": 4}),
        ("split", {"dynamic": True}),
    ],
)
def test_a_run_goes_on_from_a_keras_file(tmp_path, name, ids):
    whole = model_of(OPTIMIZERS[name](), **ids)
    train(whole, 0, 40)
    path = str(tmp_path / "model.keras")
    whole.save(path)
    loaded = keras.models.load_model(path)
    np.testing.assert_equal(state_of(loaded), state_of(whole))
    for model in (whole, loaded):
        train(model, 40, 80)
    np.testing.assert_equal(state_of(loaded), state_of(whole))
    assert state_of(whole)[2]["evicted"] > 5
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), whole.predict(X, verbose=0))


@pytest.mark.skipif(not KERAS_3, reason="Keras 2 writes weights alone, without an optimizer's")
def test_weights_into_a_model_that_has_been_trained(tmp_path):
    whole, other = model_of(), model_of()
    train(whole, 0, 40)
    whole.save_weights(str(tmp_path / "a.weights.h5"))
    train(other, 20, 80)
    other.load_weights(str(tmp_path / "a.weights.h5"))
    np.testing.assert_equal(state_of(other), state_of(whole))
    for model in (whole, other):
        train(model, 40, 80)
    np.testing.assert_equal(state_of(other), state_of(whole))


def test_a_model_that_knows_no_ids_yet(tmp_path):
    model = model_of(oov_rows=2)
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.models.load_model(path)
    for one in (model, loaded):
        train(one, 0, 20)
    np.testing.assert_equal(state_of(loaded), state_of(model))


def test_files_hold_the_rows_in_use(tmp_path):
    model = model_of(capacity=200_000, admit_after=1)
    train(model, 0, 80)
    path = tmp_path / "model.keras"
    model.save(str(path))
    # 200,000 rows of 3 numbers and two slots would be 7 MB, ids another 3.
    assert path.stat().st_size < 500_000
    np.testing.assert_equal(state_of(keras.models.load_model(str(path))), state_of(model))


def test_set_weights_takes_what_get_weights_gave():
    one, other = model_of(seed=1), model_of(seed=1)
    train(one, 0, 40)
    other.set_weights(one.get_weights())
    rows, others = state_of(one), state_of(other)
    assert set(rows[0]) == set(others[0])
    for id, (vector, score, _) in rows[0].items():
        np.testing.assert_array_equal(others[0][id][0], vector)
        assert others[0][id][1] == score
    np.testing.assert_array_equal(one.predict(X, verbose=0), other.predict(X, verbose=0))
    train(other, 40, 60)  # and its ops write into what `assign` bound


def test_an_optimizer_takes_whole_variables():
    """As Keras 2 gives them: `set_weights`, SavedModels."""
    one, other = model_of(seed=1), model_of(seed=1)
    train(one, 0, 20)
    train(other, 20, 24)
    other.set_weights(one.get_weights())
    whole = {str(index): np.asarray(v) for index, v in enumerate(one.optimizer.variables)}
    other.optimizer.load_own_variables(whole)
    np.testing.assert_equal(state_of(other), state_of(one))


def test_a_checkpoint_of_tensorflow(tmp_path):
    one, other = model_of(), model_of()
    train(one, 0, 40)
    path = tf.train.Checkpoint(model=one, optimizer=one.optimizer).save(str(tmp_path / "c"))
    train(other, 0, 4)
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    np.testing.assert_equal(state_of(other), state_of(one))
    for model in (one, other):
        train(model, 40, 80)
    np.testing.assert_equal(state_of(other), state_of(one))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"capacity": 96}, "embeddings"),
        ({"admit_after": 1}, "embeddings"),
    ],
)
def test_a_file_of_another_table_is_refused_and_nothing_changes(tmp_path, other, message):
    one, target = model_of(seed=1), model_of(**other, seed=1)
    train(one, 0, 40)
    one.save_weights(str(tmp_path / "a.weights.h5"))
    train(target, 0, 20)
    before = state_of(target)[0]
    with pytest.raises(ValueError, match=message):
        target.load_weights(str(tmp_path / "a.weights.h5"))
    np.testing.assert_equal(state_of(target)[0], before)


class PowerCut(keras.callbacks.Callback):
    """Ends training in the middle of the third epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (2, 1):
            raise RuntimeError("power cut")


def fit(model, *callbacks):
    model.fit(
        X[:16], Y[:16], batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=list(callbacks)
    )


def told(model):
    """`state_of` as JSON has it."""
    rows, dense, statistics = state_of(model)
    rows = {
        str(id): [v.tolist(), int(s), {name: x.tolist() for name, x in slots.items()}]
        for id, (v, s, slots) in rows.items()
    }
    return [rows, [d.tolist() for d in dense], statistics]


NEW_PROCESS = """
    import json, sys
    import numpy as np
    import tensorflow as tf
    root, export, backup = sys.argv[1:]

    import merlin_embeddings.native  # the ops
    served = tf.saved_model.load(export)
    x = np.load(export + "/x.npy")
    serve = served.serve if hasattr(served, "serve") else served.signatures["serving_default"]
    def answer(x):
        out = serve(tf.constant(x))
        return (list(out.values())[0] if isinstance(out, dict) else out).numpy()
    answers = [answer(x).tolist(), answer(x[::-1].copy())[::-1].tolist()]

    sys.path.append(root)
    from tests.moving import test_saving
    model = test_saving.model_of(seed=4)
    test_saving.fit(model, test_saving.keras.callbacks.BackupAndRestore(backup))
    print(json.dumps({"answers": answers, "resumed": test_saving.told(model)}))
"""


def test_exports_and_backups_in_a_new_process(tmp_path):
    """An export needs nothing but the ops to know its ids; a run that was cut goes on."""
    exported = model_of()
    train(exported, 0, 60)
    folder, backup = str(tmp_path / "export"), str(tmp_path / "backup")
    if KERAS_3:
        exported.export(folder, verbose=False)
    else:
        exported.save(folder)
    x = np.concatenate([X, X + 1])  # half of them unknown
    np.save(folder + "/x.npy", x)
    with pytest.raises(RuntimeError, match="power cut"):
        fit(model_of(seed=4), keras.callbacks.BackupAndRestore(backup), PowerCut())
    whole = model_of(seed=4)
    fit(whole)

    printed = fresh.output_of(NEW_PROCESS, Path(__file__).parents[2], folder, backup)
    found = json.loads(printed.splitlines()[-1])
    out, again = found["answers"]
    np.testing.assert_allclose(out, exported.predict(x, verbose=0), rtol=1e-5, atol=1e-6)
    assert out == again  # it learned nothing
    assert found["resumed"] == told(whole)
