"""What `EmbeddingTable` refuses, and how it says so."""

import importlib
import sys

import merlin.models.tf as mm
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.models.utils.schema_utils import create_categorical_column
from merlin.schema import ColumnSchema, Schema, Tags

import merlin_embeddings as me
import merlin_embeddings.merlin
from merlin_embeddings.merlin import EmbeddingTable

ITEM = create_categorical_column("item", 10)
FLOAT = ColumnSchema("price", [Tags.CATEGORICAL], {"domain": {"min": 0, "max": 9}}, np.float32)
NO_DOMAIN = ColumnSchema("user", [Tags.CATEGORICAL], dtype=np.int64)


def column(name, domain):
    return ColumnSchema(name, [Tags.CATEGORICAL], {"domain": domain}, np.int64)


@pytest.mark.parametrize("schema", [FLOAT, NO_DOMAIN])
def test_no_int_domain(schema):
    with pytest.raises(ValueError, match=f"'{schema.name}' .* has no int domain.*Categorify"):
        EmbeddingTable(4, schema)


@pytest.mark.parametrize("largest", [-1, float("inf"), 2.5])
def test_a_domain_without_ids(largest):
    with pytest.raises(ValueError, match=r"Column 'user' has the int domain \[-2, .*max must be"):
        EmbeddingTable(4, column("user", {"min": -2, "max": largest}))


def test_no_column():
    with pytest.raises(ValueError, match="schema of at least one column"):
        EmbeddingTable(4)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(
    "other, match",
    [
        (
            column("b", {"name": "item", "min": 0, "max": 20}),
            "'b' share a domain, but its max is 10",
        ),
        (column("b", {"name": "other", "min": 0, "max": 10}), "column 'b' has the domain 'other'"),
        (NO_DOMAIN, "column 'user' has no int domain"),
    ],
)
def test_columns_that_cant_share_a_table(other, match, add):
    with pytest.raises(ValueError, match=f"Table 'item': .*{match}"):
        if add:
            EmbeddingTable(4, ITEM).add_feature(other)
        else:
            EmbeddingTable(4, ITEM, other)


def test_shared_domain_of_different_sizes_in_embeddings():
    schema = Schema([ITEM, column("b", {"name": "item", "min": 0, "max": 20})])
    with pytest.raises(ValueError, match="max is 10 in one and 20 in the other"):
        mm.Embeddings(schema, table_cls=EmbeddingTable)


@pytest.mark.parametrize("dim", [None, 0, -3, 2.5, "16", True])
def test_no_dimension(dim):
    with pytest.raises(ValueError, match=f"Table 'item': dim={dim!r}; it must be"):
        EmbeddingTable(dim, ITEM)


@pytest.mark.parametrize("combiner", ["average", "min", "", 3, len])
def test_unknown_combiner(combiner):
    with pytest.raises(ValueError, match=r"'item': sequence_combiner=.* must be 'sum', 'mean'"):
        EmbeddingTable(4, ITEM, sequence_combiner=combiner)


@pytest.mark.parametrize(
    "arguments",
    [{"compression": 8}, {"placement": "gpu"}, {"table_dtype": "int8"}, {"ids": 7}],
)
def test_axes_that_no_table_has(arguments):
    [axis] = arguments
    with pytest.raises(ValueError, match=f"TableConfig 'item': {axis.removeprefix('table_')}="):
        EmbeddingTable(4, ITEM, **arguments)


IDS = {
    "dense": lambda ids: tf.constant([ids]),
    "scalars": lambda ids: tf.constant(ids)[:, None],
    "ragged": lambda ids: tf.RaggedTensor.from_tensor([ids])[..., None],
    "sparse": lambda ids: tf.RaggedTensor.from_tensor([ids]).to_sparse(),
}


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("bad", [11, -1])
def test_an_id_that_the_schema_doesnt_know(kind, bad, graph):
    table = EmbeddingTable(4, ITEM, sequence_combiner="sum")
    table.add_feature(create_categorical_column("history", 10, domain_name="item"))
    table.build(None)
    call = tf.function(lambda x: table(x)) if graph else table
    match = (
        rf"table 'item', feature 'history' \(in the schema its int_domain has max=10\): "
        rf"id {bad} at position 2 is outside \[0, 11\)"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        call({"item": tf.constant([[1]]), "history": IDS[kind]([3, 4, bad])})


def test_out_of_range_ids_that_are_allowed():
    table = EmbeddingTable(4, ITEM, ids=me.ids.Identity("zero"), sequence_combiner="sum")
    np.testing.assert_array_equal(table(tf.constant([[99]])), np.zeros((1, 4)))


def test_strings_where_rows_are_ids():
    with pytest.raises(ValueError, match=r"feature 'item'.*got strings.*ids.Modulo"):
        EmbeddingTable(4, ITEM)(tf.constant(["a"]))
    user = ColumnSchema("user", [Tags.CATEGORICAL], dtype=str)
    with pytest.raises(ValueError, match="mask_zero=True masks id 0"):
        EmbeddingTable(4, user, ids=me.ids.Modulo(9), mask_zero=True)(tf.constant(["a"]))


@pytest.mark.parametrize("combiner", [None, mm.SequenceAggregator("sum")])
def test_sparse_ids_without_pooling(combiner):
    with pytest.raises(ValueError, match=r"feature 'item'.*sparse ids need a combiner"):
        EmbeddingTable(4, ITEM, sequence_combiner=combiner)(tf.sparse.from_dense([[1, 2]]))


def test_ids_of_too_many_dimensions_for_a_combiner():
    with pytest.raises(ValueError, match=r"feature 'item'.*ids have shape \(1, 2, 3\)"):
        EmbeddingTable(4, ITEM, sequence_combiner="sum")(tf.zeros([1, 2, 3], tf.int64))


def test_lists_of_lists():
    with pytest.raises(tf.errors.InvalidArgumentError, match="inner ones must have one id each"):
        EmbeddingTable(4, ITEM, sequence_combiner="sum")(tf.ragged.constant([[[1, 2]], [[3]]]))


def test_ids_of_unknown_rank():
    table = EmbeddingTable(4, ITEM)
    table.build(None)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int64)])
    def call(ids):
        return table(ids)

    with pytest.raises(ValueError, match="unknown rank"):
        call(tf.constant([1], tf.int64))


@pytest.mark.parametrize("graph", [False, True])
def test_a_batch_without_the_tables_column(graph):
    """A dict without any of the columns has no vectors: merlin-models prunes such a branch."""
    table = EmbeddingTable(4, ITEM)
    table.build(None)
    call = tf.function(lambda x: table(x)) if graph else table
    assert call({"other": tf.constant([[1]])}) == {}
    assert call({"item": tf.constant([[1]]), "other": tf.constant([[1]])})["item"].shape == (1, 4)


@pytest.mark.parametrize("graph", [False, True])
def test_a_batch_without_the_column_that_the_table_was_built_with(graph):
    table = EmbeddingTable(4, ITEM)
    table({"item": tf.constant([[1]])})
    call = tf.function(lambda x: table(x)) if graph else table
    with pytest.raises(ValueError, match=r"Table 'item': .* none of its columns \['item'\].*other"):
        call({"other": tf.constant([[1]])})


FRAME = pd.DataFrame(np.ones((12, 4), np.float32))


def test_given_vectors_that_dont_fit():
    shapes = r"Table 'item': the given values have shape \[12, 4\], the table is "
    with pytest.raises(ValueError, match=shapes + r"\[11, 4\]: the int domain of column 'item'"):
        EmbeddingTable.from_pretrained(FRAME, col_schema=ITEM)
    with pytest.raises(ValueError, match=shapes + r"\[11, 3\]"):
        EmbeddingTable(3, ITEM, weights=FRAME.to_numpy())
    with pytest.raises(ValueError, match=shapes + r"\[5, 4\]: Modulo\(rows=5\) says"):
        EmbeddingTable(4, ITEM, weights=[FRAME.to_numpy()], ids=me.ids.Modulo(5))
    with pytest.raises(ValueError, match="needs the name of the column, or its col_schema"):
        EmbeddingTable.from_pretrained(FRAME)
    with pytest.raises(ValueError, match="'item': the data to start from has no rows"):
        EmbeddingTable.from_pretrained(FRAME[:0], name="item")


def test_a_table_given_that_doesnt_fit():
    with pytest.raises(ValueError, match=r"ask for \[11, 4\], the table given is \[10, 4\]"):
        EmbeddingTable(4, ITEM, table=me.layers.Embedding(10, 4))
    for table in (
        me.layers.Embedding(11, 4, combiner="sum"),
        tf.keras.layers.Embedding(11, 4),
        EmbeddingTable(4, ITEM),
    ):
        with pytest.raises(ValueError, match=r"must be a merlin_embeddings\.layers\.Embedding"):
            EmbeddingTable(4, ITEM, table=table)


def test_merlin_models_isnt_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "merlin.models.tf", None)
    with pytest.raises(ImportError, match=r"pip install merlin-models==23\.12"):
        importlib.reload(merlin_embeddings.merlin)
