"""`Embeddings`: beside merlin-models' own, and schemas that it refuses."""

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

import merlin_embeddings as me
import merlin_embeddings.merlin as mem


def column(name, top=9, domain=None, dtype=np.int64):
    properties = {} if top is None else {"domain": {"min": 0, "max": top, "name": domain or name}}
    return ColumnSchema(name, [Tags.CATEGORICAL], properties, dtype)


SCHEMA = Schema([column("item"), column("last", domain="item"), column("city", 4)])
BATCH = {"item": tf.constant([[3], [9]]), "last": tf.constant([[0], [3]]), "city": [[4], [1]]}
BATCH = {name: tf.convert_to_tensor(ids) for name, ids in BATCH.items()}


def test_the_same_as_merlin_models_own():
    ours = mem.Embeddings(SCHEMA, dim={"item": 6, "city": 3}, aggregation="concat")
    theirs = mm.Embeddings(SCHEMA, dim={"item": 6, "city": 3}, aggregation="concat")
    ours(BATCH), theirs(BATCH)
    ours.set_weights(theirs.get_weights())
    assert ours.parallel_dict.keys() == theirs.parallel_dict.keys() == {"item", "city"}
    assert all(type(table) is mem.EmbeddingTable for table in ours.parallel_dict.values())
    np.testing.assert_array_equal(ours(BATCH), theirs(BATCH))


def test_arguments_of_tables():
    block = mem.Embeddings(SCHEMA, dim=4, table_dtype={"city": "bfloat16"}, seed=3)
    block(BATCH)
    dtypes = {name: table.table.embeddings.dtype for name, table in block.parallel_dict.items()}
    assert dtypes == {"item": tf.float32, "city": tf.bfloat16}


@pytest.mark.parametrize("trainable, names", [(False, set()), ({"city": False}, {"item"})])
def test_frozen_tables(trainable, names):
    block = mem.Embeddings(SCHEMA, dim=4, trainable=trainable)
    block(BATCH)
    tables = block.parallel_dict.items()
    assert {name for name, table in tables if table.trainable_weights} == names
    assert len(block.weights) == 2


def test_a_column_without_an_int_domain():
    schema = Schema([column("item"), column("shop", top=None)])
    with pytest.raises(ValueError, match=r"Column 'shop' \(dtype int64\) has no int domain"):
        mem.Embeddings(schema, dim=4)
    strings = Schema([column("name", dtype=np.str_)])
    with pytest.raises(ValueError, match=r"Column 'name' .* has no int domain"):
        mem.Embeddings(strings, dim=4)


def test_a_domain_of_two_sizes():
    schema = Schema([column("item"), column("last", 12, domain="item")])
    with pytest.raises(ValueError, match=r"'item' and 'last' share a domain.* 9 in one and 12"):
        mem.Embeddings(schema, dim=4, ids=me.ids.Modulo(5))


def test_no_columns():
    with pytest.raises(ValueError, match="the schema has no columns"):
        mem.Embeddings(Schema([]), dim=4)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"table_dytpe": "bfloat16"}, TypeError, r"has the arguments \['table_dytpe'\].*'ids'"),
        ({"ids": {"town": me.ids.Modulo(3)}}, ValueError, r"ids has 'town', which is no col.*city"),
        ({"dim": {"town": 3}}, ValueError, "dim has 'town', which is no column"),
        ({"trainable": {"town": False}}, ValueError, "trainable has 'town', which is no column"),
        ({"seed": {"last": 3}}, ValueError, "'last', whose table 'item' .* give seed for 'item'"),
        ({"dim": {"last": 3}}, ValueError, "'last', whose table 'item' .* give dim for 'item'"),
        ({"name": "tables"}, TypeError, "tables are named by their domains; block_name names"),
        ({"dim": 0}, ValueError, "dim=0 of all columns; it must be a positive integer"),
        ({"dim": 2.5}, ValueError, r"dim=2\.5 of all columns"),
        ({"dim": {"city": "8"}}, ValueError, "dim='8' of column 'city'"),
    ],
)
def test_arguments_that_merlin_models_leaves_out(arguments, error, message):
    with pytest.raises(error, match=message):
        mem.Embeddings(SCHEMA, **arguments)


@pytest.mark.parametrize("schema", [None, "item", column("item")])
def test_what_is_no_schema(schema):
    with pytest.raises(TypeError, match=r"Embeddings: schema=.* must be a merlin\.schema\.Schema"):
        mem.Embeddings(schema, dim=4)


def test_a_list_of_columns():
    assert list(mem.Embeddings(list(SCHEMA), dim=4).parallel_dict) == ["item", "city"]


def test_dims_of_numpy():
    assert mem.Embeddings(SCHEMA, np.int64(5))["city"].dim == 5
    dims = mem.Embeddings(SCHEMA, {"item": np.int32(7)})
    assert dims["item"].dim == 7


def test_columns_that_share_may_all_be_named():
    tables = mem.Embeddings(SCHEMA, 3, sequence_combiner={"item": "sum", "last": "sum"})
    assert tables["item"].sequence_combiner == "sum"
