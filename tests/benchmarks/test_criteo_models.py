"""What the Criteo benchmark compares is the same model, whichever embeddings it has."""

import criteo_models
import numpy as np
import pytest
import tensorflow as tf
from criteo_data import CATEGORICAL, NUMERIC, Parameters, schema
from criteo_data.rows import Rows
from criteo_profile import part, share
from tensorflow import keras

BATCH = 64
IDS, NUMBERS = ("C1", "C2", "C15"), ("I1", "I2")  # a few columns: models of 26 take long to trace
STEPS = 3
# From accumulators of 0 the first steps of tiny gradients are as large as any: rounding would show.
STEADY = {"initial_accumulator_value": 0.1, "epsilon": 1e-7}


def batch_of(parameters):
    """A batch as `me.data.batches` gives it: features and labels."""
    block = Rows(parameters).block(0, 0, BATCH)
    features = {name: tf.constant(block.numbers[NUMERIC.index(name)]) for name in NUMBERS}
    for name in IDS:
        values, row_splits = block.ids[CATEGORICAL.index(name)]
        ids = tf.constant(values)
        features[name] = (
            ids if row_splits is None else tf.RaggedTensor.from_row_splits(ids, row_splits)
        )
    return features, tf.constant(block.labels)


class Losses(keras.callbacks.Callback):
    """The loss of each step; a callback's is the mean so far."""

    def __init__(self):
        super().__init__()
        self.means = []

    def on_train_batch_end(self, batch, logs=None):
        self.means.append(logs["loss"])

    def each(self):
        return np.diff(np.arange(1, 1 + len(self.means)) * self.means, prepend=0)


@pytest.fixture(scope="module", params=[1, 3], ids=["one-hot", "multi-hot"])
def trained(request):
    """A batch, and {competitor: (logits before, losses, logits after, model)} of steps on it."""
    hotness = tuple(request.param if column == 1 else 1 for column in range(26))
    parameters = Parameters(BATCH, 1, cardinalities=(30,) * 26, hotness=hotness)
    features, labels = batch_of(parameters)
    columns = schema(parameters).select_by_name([*NUMBERS, *IDS])
    data = tf.data.Dataset.from_tensors((features, labels)).repeat(STEPS)
    result = {}
    for name in criteo_models.COMPETITORS:
        model, losses = criteo_models.compiled(name, columns, 8, 5, 0.1, STEADY), Losses()
        before = model(features).numpy()
        model.fit(data, verbose=0, callbacks=[losses])
        result[name] = before, losses.each(), model(features).numpy(), model
    return features, labels, result


def test_all_start_from_the_same_logits(trained):
    _, labels, result = trained
    expected = result["ours"][0]
    assert expected.shape == labels.shape and expected.std() > 1e-3
    for name in ("keras", "tensorflow"):
        np.testing.assert_allclose(result[name][0], expected, rtol=1e-5, atol=1e-6)
    assert np.abs(result["none"][0] - expected).max() > 1e-4


def test_all_take_the_same_steps(trained):
    _, _, result = trained
    _, losses, after, _ = result["ours"]
    assert losses[2] < losses[1] < losses[0]
    for name in ("keras", "tensorflow"):
        np.testing.assert_allclose(result[name][1], losses, rtol=1e-5)
        np.testing.assert_allclose(result[name][2], after, rtol=1e-3, atol=1e-5)


def test_the_logit_is_dlrms(trained):
    """The forward pass of one row in numpy, from the trained weights."""
    features, _, result = trained
    *_, after, model = result["ours"]
    weights = {layer.name: layer.get_weights() for layer in model.layers}
    tables = dict(zip(IDS, weights["embeddings"], strict=True))
    row = 7

    def dense(x, name, relu=True):
        kernel, bias = weights[name]
        x = x @ kernel + bias
        return np.maximum(x, 0) if relu else x

    x = np.array([features[name][row] for name in NUMBERS])
    for i in range(3):
        x = dense(x, f"bottom_{i}")
    vectors = [x]
    for name in IDS:
        ids = np.atleast_1d(features[name][row].numpy())
        vectors.append(tables[name][ids].mean(axis=0))
    pairs = [vectors[i] @ vectors[j] for i in range(4) for j in range(i)]
    x = np.concatenate([x, pairs])
    for i in range(2):
        x = dense(x, f"top_{i}")
    np.testing.assert_allclose(dense(x, "logit", relu=False)[0], after[row], rtol=1e-4, atol=1e-5)


def test_sparse_adagrad_sums_duplicates_and_leaves_other_rows():
    table = keras.Variable(np.full((4, 2), 1.0, np.float32))
    before = table.value.numpy()
    optimizer = criteo_models.SparseAdagrad(0.5, initial_accumulator_value=0.1)
    gradient = tf.IndexedSlices(tf.constant([[1.0, 2], [3, 4], [5, 6]]), [2, 0, 2], [4, 2])
    optimizer.apply([gradient], [table])
    total = np.array([[3.0, 4], [6, 8]])
    expected = before.copy()
    expected[[0, 2]] -= 0.5 * total / np.sqrt(0.1 + total**2 + 1e-7)
    np.testing.assert_allclose(table.numpy(), expected, rtol=1e-6)


def test_initial_values_don_t_depend_on_how_they_are_read():
    values = np.concatenate([v for _, v in criteo_models.blocks(3, 4)(1, 100_000)])
    assert values.shape == (100_000, 4) and values.dtype == np.float32
    assert np.abs(values).max() <= 0.05 and abs(values.mean()) < 1e-3
    starts = [start for start, _ in criteo_models.blocks(3, 4)(1, 100_000)]
    assert starts == [0, 65_536]
    assert (values[:10] != np.concatenate([v for _, v in criteo_models.blocks(3, 4)(2, 10)])).all()


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("dlrm_1/embeddings_1/embeddings_1/Merlin>Lookup", "Merlin>Lookup", "embeddings"),
        ("gradient_tape/dlrm_1/embeddings_1/C3_1/Reshape", "Reshape", "embeddings"),
        ("adagrad/Merlin>Update", "Merlin>Update", "embeddings"),
        ("adagrad/update_of_tables/Sqrt_3", "Sqrt", "embeddings"),
        ("adagrad/Sqrt_3", "Sqrt", "rest"),
        ("gradient_tape/dlrm_1/top_0_1/MatMul", "MatMul", "rest"),
    ],
)
def test_ops_of_a_profile_are_told_apart(name, kind, expected):
    assert part(name, kind) == expected


def test_the_share_is_of_all_ops():
    assert share({("embeddings", "A"): 1.0, ("rest", "A"): 2.0, ("rest", "B"): 1.0}) == 0.25
    assert share({}) == 0.0
