"""`InputBlock` gives what merlin-models' InputBlockV2 gives: same weights, batches and gradients.

InputBlockV2 runs in the merlin lane's environment, started from here.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.parity import cases

CHECKOUT = Path(__file__).parents[2]
PYTHON = CHECKOUT / ".venv-merlin" / "bin" / "python"
# Sums in another order, float32.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def merlin_models(tmp_path_factory):
    """InputBlockV2's results by case, what and name."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is missing, where merlin-models is. Make it:  make test-merlin")
    path = tmp_path_factory.mktemp("parity") / "input_block_v2.npz"
    done = subprocess.run(
        [PYTHON, "-m", "tests.parity.input_block_v2", path],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )
    if done.returncode:
        pytest.fail(
            f"InputBlockV2 didn't run; bring its environment up to date:  make test-merlin\n"
            f"{done.stderr}"
        )
    results: dict = {}
    with np.load(path) as file:
        for key in file:
            case, what, name = key.split("/")
            results.setdefault(case, {}).setdefault(what, {})[name] = file[key]
    return results


def block_of(case):
    """Ours as InputBlockV2 is asked for; the projection; all weights by InputBlockV2's names."""
    schema = cases.schema(case)
    categorical = None
    if cases.tables(case):
        categorical = me.features_from_schema(schema, case.dim, case.combiner)
    dense = keras.layers.Dense(case.projection) if case.projection else None
    block = me.layers.InputBlock(
        schema,
        categorical,
        dense or True,
        aggregation=case.aggregation,
        l2_batch_regularization_factor=case.l2,
    )
    block({name: tf.constant(array) for name, array in cases.batch(case).items()})
    tables = block.categorical.tables if block.categorical else {}
    weights = {name: table.variable for name, table in tables.items()}
    if dense:
        weights |= {"kernel": dense.kernel, "bias": dense.bias}
    return block, weights


def weighed(name, tensor):
    tensor = getattr(tensor, "flat_values", tensor)
    return tf.reduce_sum(tensor * cases.values(f"cotangent {name}", tuple(tensor.shape)))


@pytest.mark.parametrize("name", cases.CASES)
def test_outputs_losses_and_gradients(merlin_models, name):
    case, expected = cases.CASES[name], merlin_models[name]
    block, weights = block_of(case)
    shapes = {weight: list(values.shape) for weight, values in weights.items()}
    assert shapes == {n: shape.tolist() for n, shape in expected.get("shape", {}).items()}
    for weight, values in weights.items():
        values.assign(cases.values(weight, tuple(values.shape)))
    batch = {column: tf.constant(array) for column, array in cases.batch(case).items()}
    numbers = {
        column: batch[column] for column in (*cases.NUMBERS, *cases.VECTORS) if column in batch
    }
    with tf.GradientTape() as tape:
        tape.watch(numbers)
        outputs = block(batch)
        outputs = outputs if isinstance(outputs, dict) else {"all": outputs}
        losses = list(block.losses)
        total = tf.add_n([weighed(*item) for item in outputs.items()] + losses)
    variables = {weight: getattr(v, "value", v) for weight, v in weights.items()}
    gradients = tape.gradient(total, {**variables, **numbers})

    assert set(outputs) == set(expected["output"])
    for column, tensor in outputs.items():
        found = getattr(tensor, "flat_values", tensor)
        np.testing.assert_allclose(found, expected["output"][column], **CLOSE, err_msg=column)
    np.testing.assert_allclose(sum(map(float, losses)), expected["loss"][""], rtol=1e-5)
    assert bool(losses) == bool(case.l2)
    assert set(gradients) == set(expected["gradient"])
    for weight, gradient in gradients.items():
        found = tf.convert_to_tensor(gradient).numpy()
        wanted = expected["gradient"][weight].reshape(found.shape)
        assert np.any(wanted)
        np.testing.assert_allclose(found, wanted, **CLOSE, err_msg=weight)
