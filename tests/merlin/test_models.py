"""All prebuilt models of merlin-models that take embeddings, with our table in them.

Each trains, is saved, and is loaded by a fresh process that predicts the same.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import merlin.models.tf as mm
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.io import Dataset
from merlin.schema import ColumnSchema, Schema, Tags

import merlin_embeddings as me
import merlin_embeddings.merlin as mem
from tests import fresh

ROWS, BATCH, DIM = 96, 32, 8
LIST = {"is_list": True, "is_ragged": True}


def categorical(name, count, *tags, domain=None, **kwargs):
    properties = {"domain": {"name": domain or name, "min": 0, "max": count - 1}}
    return ColumnSchema(name, [Tags.CATEGORICAL, *tags], properties, np.int64, **kwargs)


SCHEMA = Schema(
    [
        categorical("user_id", 20, Tags.USER, Tags.USER_ID),
        categorical("history", 30, Tags.USER, domain="item_id", **LIST),
        categorical("item_id", 30, Tags.ITEM, Tags.ITEM_ID),
        categorical("genre", 5, Tags.ITEM),
        ColumnSchema("age", [Tags.CONTINUOUS, Tags.USER], dtype=np.float32),
        ColumnSchema("click", [Tags.TARGET, Tags.BINARY_CLASSIFICATION], dtype=np.int64),
    ]
)
WITHOUT_LISTS = SCHEMA.excluding_by_name(["history"])
WIDE = SCHEMA.select_by_name(["genre"])
IDS = SCHEMA.select_by_name(["user_id", "item_id"])
RETRIEVAL = SCHEMA.excluding_by_name(["click"])
SESSIONS = Schema([categorical("item_id", 30, Tags.ITEM, Tags.ITEM_ID, Tags.SEQUENCE, **LIST)])
click = functools.partial(mm.BinaryOutput, "click")

# The first test trains all models, the first of the loaded ones loads them.
pytestmark = pytest.mark.timeout(1500)


def tables(schema, **kwargs):
    schema = schema.select_by_tag(Tags.CATEGORICAL)
    return mm.Embeddings(schema, dim=DIM, table_cls=mem.EmbeddingTable, **kwargs)


def together(schema, **kwargs):
    """The same tables, looked up by one op."""
    return mem.Embeddings(schema.select_by_tag(Tags.CATEGORICAL), dim=DIM, **kwargs)


def inputs(schema, aggregation="concat", tables=tables, **kwargs):
    return mm.InputBlockV2(schema, categorical=tables(schema, **kwargs), aggregation=aggregation)


def tower(tag):
    return mm.Encoder(inputs(SCHEMA.select_by_tag(tag), tables=together), mm.MLPBlock([DIM]))


def dlrm():
    return mm.DLRMModel(
        SCHEMA,
        embeddings=tables(SCHEMA),
        bottom_block=mm.MLPBlock([DIM]),
        top_block=mm.MLPBlock([4]),
        prediction_tasks=click(),
    )


def dcn():
    return mm.DCNModel(
        SCHEMA,
        depth=1,
        deep_block=mm.MLPBlock([4]),
        input_block=inputs(SCHEMA, tables=together),
        prediction_tasks=click(),
    )


def deep_fm():
    return mm.DeepFMModel(
        WITHOUT_LISTS,
        deep_block=mm.MLPBlock([4]),
        input_block=inputs(WITHOUT_LISTS, aggregation=None, tables=together),
        prediction_tasks=click(),
    )


def wide_and_deep():
    return mm.WideAndDeepModel(
        SCHEMA,
        deep_block=mm.MLPBlock([4]),
        deep_input_block=inputs(SCHEMA),
        wide_schema=WIDE,
        wide_preprocess=mm.CategoryEncoding(WIDE, sparse=True, output_mode="multi_hot"),
        prediction_tasks=click(),
    )


def two_tower():
    return mm.TwoTowerModelV2(tower(Tags.USER), tower(Tags.ITEM))


def matrix_factorization():
    return mem.MatrixFactorizationModelV2(IDS, dim=DIM)


def youtube_dnn():
    return mm.YoutubeDNNRetrievalModelV2(
        SESSIONS, inputs=inputs(SESSIONS), top_block=mm.MLPBlock([DIM]), num_sampled=10
    )


def sessions():
    """XLNet over the vectors of the items, whose table makes the logits too."""
    block = inputs(SESSIONS, sequence_combiner=None)
    return mm.Model(
        block,
        mm.XLNetBlock(d_model=DIM, n_head=2, n_layer=1),
        mm.CategoricalOutput(
            block["categorical"]["item_id"], default_loss="categorical_crossentropy"
        ),
    )


def next_item(model):
    return mm.SequencePredictNext(schema=SESSIONS, target="item_id", transformer=model.blocks[1])


def masked_items(model):
    return mm.SequenceMaskRandom(
        schema=SESSIONS, target="item_id", transformer=model.blocks[1], masking_prob=0.4
    )


def last_item(model):
    return mm.SequencePredictLast(schema=SESSIONS, target="item_id")


@dataclass(frozen=True)
class Case:
    """A model, the columns that it is fed, its number of tables, and what makes its targets.

    `one_hot`: it has a Dense layer over one-hot ids too, whose kernel Keras gathers from.
    """

    build: object
    schema: Schema
    tables: int
    pre: object = None
    one_hot: bool = False


CASES = {
    "dlrm": Case(dlrm, SCHEMA, 3),
    "dcn": Case(dcn, SCHEMA, 3),
    "deep_fm": Case(deep_fm, WITHOUT_LISTS, 3, one_hot=True),
    "wide_and_deep": Case(wide_and_deep, SCHEMA, 3, one_hot=True),
    "two_tower": Case(two_tower, RETRIEVAL, 4),  # history and item are in different towers
    "matrix_factorization": Case(matrix_factorization, IDS, 2),
    "youtube_dnn": Case(youtube_dnn, SESSIONS, 1, last_item),
    "xlnet_next": Case(sessions, SESSIONS, 1, next_item),
    "xlnet_masked": Case(sessions, SESSIONS, 1, masked_items),
}


def frame():
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "user_id": random.integers(20, size=ROWS),
            "history": [random.integers(1, 30, size=n) for n in random.integers(2, 6, size=ROWS)],
            "item_id": random.integers(1, 30, size=ROWS),
            "genre": random.integers(5, size=ROWS),
            "age": random.normal(size=ROWS).astype(np.float32),
            "click": random.integers(2, size=ROWS),
        }
    )


def loader(case):
    """Batches in a fixed order; sessions are the histories."""
    rows = frame()
    if case.schema is SESSIONS:
        rows = rows[["history"]].rename(columns={"history": "item_id"})
    rows = rows[case.schema.column_names]
    return mm.Loader(Dataset(rows, schema=case.schema), batch_size=BATCH, shuffle=False)


LOAD = """
import sys
from pathlib import Path
import numpy as np
import merlin_embeddings.merlin
import merlin.models.tf as mm

for path in map(Path, sys.argv[1:]):
    model = mm.Model.load(str(path / "model"))
    batches = []
    for file in sorted(path.glob("batch*.npz")):
        with np.load(file) as batch:
            batches.append(np.asarray(model(dict(batch), training=False)))
    np.savez(path / "loaded", *batches)
"""


@dataclass
class Trained:
    """What is known of a model that trained and was saved."""

    model: object
    ops: set
    losses: list
    moved: list  # by table: whether its values changed
    folder: Path
    predictions: list  # a batch each


@pytest.fixture(scope="module")
def trained(executed_ops, tmp_path_factory):
    """Every model once trained and saved."""
    return {
        name: train(case, executed_ops, tmp_path_factory.mktemp(name))
        for name, case in CASES.items()
    }


def train(case, executed_ops, folder):
    model = case.build()
    model.compile(me.optimizers.Adagrad(0.1))
    batches = [batch[0] for batch in loader(case)]
    model(batches[0], training=False)  # builds it
    before = [weight.numpy() for weight in tables_of(model)]
    arguments = {} if case.pre is None else {"pre": case.pre(model)}
    with executed_ops() as ops:
        history = model.fit(loader(case), epochs=2, verbose=0, **arguments).history
    moved = [
        not np.array_equal(weight, values)
        for weight, values in zip(tables_of(model), before, strict=True)
    ]
    predictions = [np.asarray(model(batch, training=False)) for batch in batches]
    model.save(str(folder / "model"))
    for number, batch in enumerate(batches):
        np.savez(folder / f"batch{number}", **{name: ids.numpy() for name, ids in batch.items()})
    return Trained(model, ops, history["loss"], moved, folder, predictions)


def tables_of(model):
    """The weights of all tables of ours in a model, each once."""
    found = {}
    for layer in model._flatten_layers():
        if isinstance(layer, me.layers.Embedding):
            found[id(layer.embeddings)] = layer.embeddings
    return list(found.values())


@pytest.fixture(scope="module")
def loaded(trained):
    """The predictions of a fresh process that loads every model, by model and batch."""
    fresh.output_of(LOAD, *(one.folder for one in trained.values()))
    predictions = {}
    for name, one in trained.items():
        with np.load(one.folder / "loaded.npz") as file:
            predictions[name] = [file[key] for key in file.files]
    return predictions


@pytest.mark.parametrize("name", CASES)
def test_trains_with_the_native_ops_alone(name, trained):
    one = trained[name]
    assert {"Merlin>Lookup", "Merlin>Update"} <= one.ops
    assert ("ResourceGather" in one.ops) == CASES[name].one_hot
    assert len(one.moved) == CASES[name].tables and all(one.moved)
    assert np.isfinite(one.losses).all()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.one_hot])
def test_tensorflow_gathers_from_kernels_and_not_from_tables(name, trained):
    model = trained[name].model
    batch = next(iter(loader(CASES[name])))[0]
    batch = {name: tf.TensorSpec([None], tensor.dtype) for name, tensor in batch.items()}
    step = tf.function(lambda batch: model(batch, training=True))
    graph = step.get_concrete_function(batch).graph
    gathers = [op for op in graph.get_operations() if op.type == "ResourceGather"]
    sources = {id(op.inputs[0]) for op in gathers}
    gathered = [outside for outside, inside in graph.captures if id(inside) in sources]
    assert gathered
    tables = [weight.handle for weight in tables_of(model)]
    assert not [handle for handle in gathered if any(handle is table for table in tables)]
    kernels = [w.handle for w in model.trainable_weights if "kernel" in w.name]
    assert all(any(handle is kernel for kernel in kernels) for handle in gathered)


@pytest.mark.parametrize("name", CASES)
def test_a_fresh_process_predicts_the_same(name, trained, loaded):
    assert len(trained[name].predictions) == ROWS // BATCH
    for expected, found in zip(trained[name].predictions, loaded[name], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
