"""One `EmbeddingTable` for inputs and outputs, and vectors for retrieval."""

import merlin.models.tf as mm
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.io import Dataset
from merlin.models.tf.outputs.classification import EmbeddingTablePrediction
from merlin.models.utils.schema_utils import create_categorical_column
from merlin.schema import Schema, Tags
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.merlin import EmbeddingTable

RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(11, 3)).astype(np.float32)
ITEM = create_categorical_column("item", 10, tags=[Tags.ITEM, Tags.ITEM_ID])
QUERY = tf.constant(RNG.normal(size=(4, 3)), tf.float32)
IDS = tf.constant([[1], [2], [2], [10]])
CLASSES = (EmbeddingTable, mm.EmbeddingTable)


def make(cls, **kwargs):
    table = cls(3, ITEM, weights=[WEIGHTS], **kwargs)
    table.table(tf.constant([0]))  # merlin-models' own has the values given only after a call
    return table


def test_categorical_output():
    results = []
    for cls in CLASSES:
        table = make(cls)
        output = mm.CategoricalOutput(table)
        with tf.GradientTape() as tape:
            logits = output(table(IDS) + QUERY)
            loss = tf.reduce_sum(tf.sin(logits))
        gradient = tape.gradient(loss, table.table.embeddings)
        assert output.to_call.table is table
        assert output.target_name == "item"
        np.testing.assert_array_equal(output.to_dataset(gpu=False).to_ddf().compute(), WEIGHTS)
        assert output.compute_output_shape(QUERY.shape) == (4, 11)
        results.append((logits, tf.convert_to_tensor(gradient)))
    np.testing.assert_allclose(results[0][0], (WEIGHTS[[1, 2, 2, 10]] + QUERY) @ WEIGHTS.T, 1e-5)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-5, atol=1e-6)


def test_contrastive_output():
    results = []
    for cls in CLASSES:
        table = make(cls)
        output = mm.ContrastiveOutput(table, "in-batch", logits_temperature=0.5)
        with tf.GradientTape() as tape:
            scores = output(table(IDS) + QUERY, features={}, targets=IDS, training=True)
            loss = tf.reduce_sum(tf.nn.softmax(scores.predictions)[:, 0])
        gradient = tape.gradient(loss, table.table.embeddings)
        logits = output(QUERY)  # not in training: all items
        results.append([scores.outputs, scores.targets, logits, tf.convert_to_tensor(gradient)])
        np.testing.assert_array_equal(output.to_dataset(gpu=False).to_ddf().compute(), WEIGHTS)
        with pytest.raises(ValueError):
            mm.ContrastiveOutput(None, "in-batch")
    for ours, stock in zip(*results, strict=True):
        np.testing.assert_allclose(ours, stock, rtol=1e-5, atol=1e-6)


def test_a_prediction_with_a_bias():
    for cls in CLASSES:
        prediction = EmbeddingTablePrediction(make(cls), use_bias=True)
        np.testing.assert_allclose(prediction(QUERY), QUERY @ WEIGHTS.T, rtol=1e-5)
        np.testing.assert_array_equal(prediction.embedding_lookup(IDS[:, 0]), WEIGHTS[IDS[:, 0]])
        ragged = tf.RaggedTensor.from_row_lengths(QUERY, [3, 0, 1])
        np.testing.assert_allclose(prediction(ragged).flat_values, QUERY @ WEIGHTS.T, rtol=1e-5)
        again = type(prediction).from_config(prediction.get_config())
        assert type(again.table) is cls


class Tied(keras.Model):
    """Items in, the next item out, by one table."""

    def __init__(self, table):
        super().__init__()
        self.table = table
        self.output_block = mm.CategoricalOutput(table)

    def call(self, ids):
        return self.output_block(self.table(ids))


OPTIMIZERS = {
    "keras adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "keras adam": lambda: keras.optimizers.Adam(0.1),
    "legacy adam": lambda: keras.optimizers.legacy.Adam(0.1),
    "our adagrad": lambda: me.optimizers.Adagrad(0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tied_models_train_alike(name, executed_ops):
    """The dense gradient of the softmax and the sparse one of the lookup meet in one table."""
    targets = tf.one_hot([2, 3, 4, 0], 11)
    weights = []
    for cls in CLASSES:
        model = Tied(make(cls, sequence_combiner="mean"))
        # Ours has Keras's rule and step: the stock table takes Keras's own.
        keras_name = "keras adagrad" if name == "our adagrad" and cls is mm.EmbeddingTable else name
        model.compile(OPTIMIZERS[keras_name](), keras.losses.CategoricalCrossentropy(True))
        with executed_ops() as ops:
            model.fit(IDS, targets, batch_size=2, epochs=3, shuffle=False, verbose=0)
        assert ("Merlin>Lookup" in ops) == (cls is EmbeddingTable)
        weights.append(model.table.get_weights()[0])
    assert np.abs(weights[0] - WEIGHTS).max() > 0.05
    np.testing.assert_allclose(*weights, rtol=1e-4, atol=1e-5)


def test_hashed_rows_in_contrastive_output():
    table = EmbeddingTable(3, ITEM, ids=me.ids.Modulo(4), seed=1)
    output = mm.ContrastiveOutput(table, "in-batch")
    output(QUERY, features={}, targets=IDS, training=True)
    found = output.embedding_lookup(tf.constant([[9], [1]]))
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("column", [ITEM, ITEM.with_properties({"domain": None})])
@pytest.mark.parametrize("cls", [mm.CategoricalOutput, mm.ContrastiveOutput])
def test_targets_without_a_row_of_their_own(cls, column):
    table = EmbeddingTable(3, column, ids=me.ids.Modulo(4))
    table({"item": IDS})
    output = cls(table) if cls is mm.CategoricalOutput else cls(table, "in-batch")
    with pytest.warns(UserWarning, match=r"'item': ids=Modulo\(rows=4\).* from 4 on have none"):
        assert output(QUERY).shape == (4, 4)


@pytest.mark.parametrize("ids", [None, me.ids.Modulo(11), me.ids.Identity("zero")])
def test_targets_with_rows_of_their_own(ids, recwarn):
    table = EmbeddingTable(3, ITEM, ids=ids)
    table({"item": IDS})
    assert mm.CategoricalOutput(table)(QUERY).shape == (4, 11)
    assert not [w for w in recwarn if "have none" in str(w.message)]


def test_top_k_of_an_encoders_items():
    frame = pd.DataFrame({"item": np.arange(11)})
    data = Dataset(frame, schema=Schema([ITEM]))
    vectors = {}
    for cls in CLASSES:
        block = mm.ParallelBlock({"item": make(cls)}, aggregation="concat", schema=Schema([ITEM]))
        encoder = mm.Encoder(block)
        encoder({"item": IDS})
        encoded = encoder.encode(data, index="item", batch_size=4).to_ddf().compute()
        np.testing.assert_array_equal(encoded.index, np.arange(11))
        vectors[cls] = encoded.to_numpy()
        top = mm.TopKEncoder(
            encoder, topk_layer="brute-force-topk", candidates=Dataset(encoded), k=3
        )
        found = top({"item": IDS})
        scores = WEIGHTS[IDS[:, 0]] @ WEIGHTS.T
        np.testing.assert_array_equal(found.identifiers, np.argsort(-scores, 1)[:, :3])
    np.testing.assert_array_equal(vectors[EmbeddingTable], WEIGHTS)
    np.testing.assert_array_equal(vectors[mm.EmbeddingTable], WEIGHTS)
