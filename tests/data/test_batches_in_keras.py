"""`fit`, `evaluate` and `predict` on what `batches` gives, from each source."""

import numpy as np
import pytest
from merlin.dataloader.tensorflow import Loader
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.data import batches
from tests.data.rows import frame

ROWS = 256
ID = [Tags.CATEGORICAL]
SCHEMA = Schema(
    [
        ColumnSchema("user", dtype="int64", tags=ID, properties={"domain": {"min": 0, "max": 999}}),
        ColumnSchema("item", dtype="int32", tags=ID, properties={"domain": {"min": 0, "max": 49}}),
        ColumnSchema(
            "tags",
            dtype="int64",
            tags=ID,
            is_list=True,
            is_ragged=True,
            properties={"domain": {"min": 0, "max": 19}, "value_count": {"min": 0, "max": 5}},
        ),
        ColumnSchema("age", dtype="float32", tags=[Tags.CONTINUOUS]),
        ColumnSchema("click", dtype="int8", tags=[Tags.BINARY_CLASSIFICATION, Tags.TARGET]),
    ]
)


@pytest.fixture(scope="module")
def rows():
    return frame(ROWS)[SCHEMA.column_names]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows")
    rows.to_parquet(path / "part_0.parquet", row_group_size=50)
    return path


def make_model():
    inputs = me.data.keras_inputs(SCHEMA)
    features = me.data.features_from_schema(SCHEMA, embedding_dim=4)
    vectors = me.layers.Embeddings(features)({name: inputs[name] for name in features})
    age = keras.ops.expand_dims(inputs["age"], -1)
    hidden = keras.layers.Concatenate()([*vectors.values(), age])
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid")(hidden))
    model.compile(me.optimizers.Adagrad(0.5), "binary_crossentropy", metrics=["accuracy"])
    return model


SOURCES = {
    "Parquet": lambda folder, **options: batches(folder, SCHEMA, batch_size=64, **options),
    "Dataset": lambda folder, **options: batches(
        Dataset(str(folder), engine="parquet", schema=SCHEMA), batch_size=64, **options
    ),
    "Loader": lambda folder, **options: batches(
        Loader(Dataset(str(folder), engine="parquet", schema=SCHEMA), batch_size=64), **options
    ),
    "tf.data": lambda folder, **options: batches(
        batches(folder, SCHEMA, batch_size=64, targets=[], columns=SCHEMA.column_names),
        SCHEMA,
        **options,
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_fit_evaluate_predict(folder, rows, source):
    keras.utils.set_random_seed(1)
    model, dataset = make_model(), SOURCES[source](folder)
    history = model.fit(dataset, epochs=8, validation_data=SOURCES[source](folder), verbose=0)
    losses = history.history["loss"]
    assert losses[-1] < 0.95 * losses[0]
    loss, accuracy = model.evaluate(dataset, verbose=0)
    assert loss == pytest.approx(history.history["val_loss"][-1], rel=1e-5)

    predicted = model.predict(dataset, verbose=0)
    assert predicted.shape == (ROWS, 1)
    # Row by row, in the order of the rows, with Keras's own arithmetic.
    labels = rows["click"].to_numpy()
    assert accuracy == pytest.approx(((predicted[:, 0] > 0.5) == labels).mean(), abs=1e-6)
    likely = np.where(labels == 1, predicted[:, 0], 1 - predicted[:, 0])
    assert loss == pytest.approx(-np.log(np.maximum(likely, 1e-7)).mean(), rel=1e-4)
    without = SOURCES[source](folder, targets=[])
    np.testing.assert_allclose(model.predict(without, verbose=0), predicted, rtol=1e-6)


def test_every_source_trains_alike(folder):
    weights = []
    for source in SOURCES:
        keras.utils.set_random_seed(1)
        model = make_model()
        model.fit(SOURCES[source](folder), epochs=2, verbose=0)
        weights.append(model.get_weights())
    for other in weights[1:]:
        for a, b in zip(weights[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_shuffled_fit_comes_again(folder):
    weights = []
    for seed in (3, 3, 4):
        keras.utils.set_random_seed(1)
        model = make_model()
        dataset = batches(folder, SCHEMA, batch_size=64, shuffle=True, seed=seed)
        model.fit(dataset, epochs=3, verbose=0)
        weights.append(np.concatenate([w.ravel() for w in model.get_weights()]))
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_progress_knows_the_steps(folder):
    steps = []

    class Steps(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            steps.append(self.params["steps"])

    make_model().fit(batches(folder, SCHEMA, batch_size=60), callbacks=[Steps()], verbose=0)
    assert steps == [5]


def test_steps_per_epoch(folder):
    dataset = batches(folder, SCHEMA, batch_size=64, shuffle=True).repeat()
    history = make_model().fit(dataset, steps_per_epoch=3, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2
