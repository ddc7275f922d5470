"""merlin-systems: a workflow and a model as one ensemble, exported, and served elsewhere."""

import contextlib
import re

import merlin.models.tf as mm
import numpy as np
import nvtabular as nvt
import pytest
from merlin.systems.dag import Ensemble
from merlin.systems.dag.ops.tensorflow import PredictTensorflow
from merlin.systems.dag.ops.workflow import TransformWorkflow
from tensorflow import keras

import merlin_embeddings as me
from tests.fresh import last_line_of
from tests.merlin import documented

# The process that serves: TensorFlow and the op library, then merlin-systems too.
SERVER = """
    import json, os, sys
    import numpy as np
    import tensorflow as tf

    os.chdir({folder!r})
    tf.load_op_library({library!r})
    served = tf.saved_model.load({saved_model!r}).signatures["serving_default"]
    wanted = served.structured_input_signature[1]
    with np.load({batch!r}) as batch:
        inputs = {{name: tf.constant(batch[name], spec.dtype) for name, spec in wanted.items()}}
    [prediction] = served(**inputs).values()
    answers = {{"signature": prediction.numpy().tolist()}}

    import pandas as pd
    import nvtabular as nvt
    from merlin.dag import postorder_iter_nodes
    from merlin.systems.dag import Ensemble
    from merlin.systems.dag.ops.tensorflow import PredictTensorflow
    from merlin.systems.dag.ops.workflow import TransformWorkflow

    raw = pd.read_json({raw!r}, orient="records").astype({{"price": "float32"}})
    workflow = nvt.Workflow.load({workflow!r})
    ops = workflow.input_schema.column_names >> TransformWorkflow(workflow)
    ensemble = Ensemble(ops >> PredictTensorflow({saved_model!r}), workflow.input_schema)
    answers["made anew"] = ensemble.transform(raw).iloc[:, 0].tolist()

    ensemble = Ensemble.load({ensemble!r})
    for node in postorder_iter_nodes(ensemble.graph.output_node, flatten_subgraphs=True):
        node.op = getattr(node.op, "op", node.op)  # instead of the one that asks Triton
        if isinstance(node.op, PredictTensorflow):
            node.op.model = tf.saved_model.load({saved_model!r})
    answers["as exported"] = ensemble.transform(raw).iloc[:, 0].tolist()
    for package in ("merlin_embeddings", "merlin.models"):
        assert package not in sys.modules
    print(json.dumps(answers))
"""


def raw_rows():
    """As they come from the world: a user, an item and a viewed item that training never saw."""
    raw = documented.names()["frame"].drop(columns="click").head(5).copy()
    raw.loc[1, "user"] = 7_777
    raw.loc[2, "item"] = 12_345
    raw.at[3, "viewed"] = [4, 9_999, 5]
    return raw


def batch_of(raw):
    """The rows as the workflow and the loader hand them to a model."""
    transformed = documented.names()["serving"].transform(nvt.Dataset(raw))
    [(batch, _)] = mm.Loader(transformed, batch_size=len(raw), shuffle=False)
    return batch


def of_merlin_models():
    """The documented model, and its exported ensemble."""
    return documented.names()["model"], documented.FOLDER / "ensemble"


def of_keras_alone():
    """A functional model without anything of merlin-models, with a list's values and offsets."""
    schema, serving = documented.names()["schema"], documented.names()["serving"]
    block = me.layers.InputBlock(schema, continuous=True)
    inputs = me.data.keras_inputs(schema)
    del inputs["viewed"]
    for name in ("viewed__values", "viewed__offsets"):
        inputs[name] = keras.Input((), dtype="int64", name=name)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid", name="click")(block(inputs)))
    with contextlib.chdir(documented.FOLDER):
        operators = serving.input_schema.column_names >> TransformWorkflow(serving)
        ensemble = Ensemble(operators >> PredictTensorflow(model), serving.input_schema)
        ensemble.export("ensemble_of_keras")
    return model, documented.FOLDER / "ensemble_of_keras"


@pytest.fixture(scope="module", params=[of_merlin_models, of_keras_alone])
def answers(request, tmp_path_factory):
    """What a model predicts here, and its exported ensemble in another process."""
    path = tmp_path_factory.mktemp("serving")
    raw = raw_rows()
    model, exported = request.param()
    with contextlib.chdir(documented.FOLDER):
        batch = batch_of(raw)
    np.savez(path / "batch.npz", **batch)
    raw.to_json(path / "raw.json", orient="records", double_precision=15)
    script = SERVER.format(
        folder=str(documented.FOLDER),
        library=documented.names()["library"],
        saved_model=str(exported / "1_predicttensorflowtriton/1/model.savedmodel"),
        workflow=str(exported / "0_transformworkflowtriton/1/workflow"),
        ensemble=str(exported / "executor_model/1/ensemble"),
        batch=str(path / "batch.npz"),
        raw=str(path / "raw.json"),
    )
    config = (exported / "1_predicttensorflowtriton/config.pbtxt").read_text()
    return {**last_line_of(script), "expected": model(batch).numpy(), "config": config}


@pytest.mark.parametrize("where", ["signature", "made anew", "as exported"])
def test_predictions_of_another_process(answers, where):
    expected = answers["expected"]
    assert expected.shape == (5, 1) and np.ptp(expected) > 1e-4
    np.testing.assert_allclose(answers[where], expected, rtol=1e-5)


def test_lists_are_values_and_offsets(answers):
    names = re.findall(r'name: "(.*?)"', answers["config"])
    assert {"user", "item", "viewed__values", "viewed__offsets", "price"} < set(names)
    assert "tensorflow_savedmodel" in answers["config"]
