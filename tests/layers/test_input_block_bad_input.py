"""What an `InputBlock` refuses, and what it says."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.data import Column, Domain

ITEM = Column("item", ("categorical",), "int64", domain=Domain(None, 0, 9))
AGE = Column("age", ("continuous",), "float32")
IMAGE = Column("image", ("embedding",), "float32", True, (2, 2))


def refused(match, *args, error=ValueError, **kwargs):
    with pytest.raises(error, match=match):
        me.layers.InputBlock(*args, **kwargs)


def test_no_column_is_left():
    schema = [Column("day"), Column("click", ("target",))]
    refused(r"no column is left.*'day': 'other', 'click': 'target'.*AddMetadata", schema)
    refused("no column is left", [ITEM], categorical=None)
    refused("no column is left", [AGE], continuous=False)


def test_arguments_of_other_kinds():
    refused("A schema is a merlin", "schema.pbtxt", error=TypeError)
    refused("categorical='item'; it must be True", [ITEM], "item", error=TypeError)
    nested = {"a": me.features_from_schema([ITEM])}
    refused("a dict of FeatureConfigs by column", [ITEM], nested, error=TypeError)
    refused("continuous='age'; it must be True", [AGE], continuous="age", error=TypeError)
    refused("vectors=3; it must be True", [IMAGE], vectors=3, error=TypeError)
    refused("pre has <function.*Lambda", [ITEM], pre=lambda x: x, error=TypeError)
    refused("post has 'l2'", [ITEM], post=["l2"], error=TypeError)
    array = "pretrained is a ndarray; it must be a dict by name of table or column"
    refused(array, [ITEM], pretrained=np.zeros([10, 4]), error=TypeError)
    workflow = r"fingerprint='workflow'; it must be data.Fingerprint.of\(workflow\), or None"
    refused(workflow, [ITEM], fingerprint="workflow", error=TypeError)
    refused("aggregation='sum'; it must be 'concat'", [ITEM], aggregation="sum")


@pytest.mark.parametrize("factor", [-0.1, "0.1", True, float("nan")])
def test_factors(factor):
    refused("l2_batch_regularization_factor is", [ITEM], l2_batch_regularization_factor=factor)
    refused(
        "l2_batch_regularization_factor of column 'item' is",
        [ITEM],
        l2_batch_regularization_factor={"item": factor},
    )


def test_a_factor_for_another_column():
    refused(
        r"has \['age'\], which is no categorical column; these are \['item'\]",
        [ITEM, AGE],
        l2_batch_regularization_factor={"age": 0.1},
    )


def test_a_domain_without_max():
    refused(
        "'item': its domain 'thing' has max=None",
        [Column("item", ("categorical",), domain=Domain("thing", 0, None))],
    )


def called(match, schema, inputs, error=ValueError, **kwargs):
    block = me.layers.InputBlock(schema, **kwargs)
    with pytest.raises(error, match=match):
        block(inputs)


def test_a_missing_column():
    called(r"'item' isn't in the inputs, which have \['age'\]", [ITEM, AGE], {"age": np.ones(2)})
    called(
        r"Column 'age' isn't in the inputs, which have \['item'\].*'age__values'",
        [ITEM, AGE],
        {"item": np.ones(2, np.int64)},
    )


def test_inputs_that_are_no_dict():
    called("takes a dict of columns; got", [ITEM], np.ones(2, np.int64))


def test_columns_of_other_kinds():
    called("Column 'age' has strings", [AGE], {"age": tf.constant(["a"])})
    called("Column 'age' is a tensor of rank 4", [AGE], {"age": tf.ones([1, 2, 3, 4])})
    called("Column 'image' is a tensor of rank 1; it must be", [IMAGE], {"image": tf.ones([2])})
    called("ids have dtype float32", [ITEM], {"item": tf.ones([2])}, TypeError)


def test_an_id_out_of_range():
    called(
        "table 'item', feature 'item'.*10",
        [ITEM],
        {"item": np.array([3, 10])},
        tf.errors.InvalidArgumentError,
    )


def test_a_stack_of_other_lengths():
    called(
        r"columns must have one shape.*projection.*'age': '\[.*1\]', 'item': '\[.*8\]'",
        [ITEM, AGE],
        {"item": np.array([1]), "age": np.array([1.0])},
        aggregation="stack",
    )


@pytest.mark.parametrize("layer", [me.layers.Concat(), me.layers.Stack()])
@pytest.mark.parametrize("given", [tf.ones([2, 3]), {}])
def test_what_can_not_be_joined(layer, given):
    with pytest.raises(ValueError, match="joins a dict of tensors"):
        layer(given)


def test_pretrained_beside_a_layer():
    layer = me.layers.Embeddings(me.features_from_schema([ITEM], 4))
    for categorical in (layer, None):
        refused(
            "pretrained= changes the tables of categorical=True",
            [ITEM, AGE],
            categorical,
            pretrained={"item": np.ones([10, 4])},
        )


def test_two_outputs_of_one_name():
    schema = [Column("continuous", ("categorical",), "int64", domain=Domain(max=9)), AGE]
    block = me.layers.InputBlock(schema, continuous=keras.layers.Dense(2))
    with pytest.raises(ValueError, match=r"two outputs have the name 'continuous'.*return a dict"):
        block({"continuous": np.array([1]), "age": np.array([1.0])})
