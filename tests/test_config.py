"""Configs: validation, printing, comparison, and the way to plain JSON data and back."""

import dataclasses
import json

import numpy as np
import pytest
from tensorflow import keras

from merlin_embeddings import ids
from merlin_embeddings.config import (
    FeatureConfig,
    PositionWeights,
    TableConfig,
    from_plain,
    same,
    spec,
    to_plain,
)


def through_json(data):
    return json.loads(json.dumps(data))


def test_prints_required_fields_and_those_that_differ():
    item = TableConfig("item", None, 16, ids=ids.Modulo(100), dtype="bfloat16")
    assert repr(item) == (
        "TableConfig(name='item', vocabulary_size=None, embedding_dim=16, "
        "ids=Modulo(rows=100), dtype='bfloat16')"
    )
    assert repr(FeatureConfig("f", item, padding_id=0)).endswith("padding_id=0)")


@pytest.mark.parametrize(
    "table",
    [
        TableConfig("item", 10, 4),
        TableConfig("item", None, 4, ids=ids.Modulo(7), dtype="float16", seed=3, trainable=False),
        TableConfig("item", 10, 4, ids=ids.Identity("clip"), placement="host"),
    ],
)
@pytest.mark.parametrize("combiner", ["sum", None])
def test_round_trip_through_json(table, combiner):
    feature = FeatureConfig("f", table, combiner, padding_id=0)
    assert TableConfig.from_dict(through_json(table.to_dict())) == table
    assert FeatureConfig.from_dict(through_json(feature.to_dict())) == feature
    nested = {"x": [feature, None], "y": (1, (2,))}
    assert from_plain(through_json(to_plain(nested))) == nested


def test_keras_objects_round_trip():
    table = TableConfig(
        "item",
        10,
        4,
        initializer=keras.initializers.RandomNormal(stddev=0.25, seed=1),
        regularizer=keras.regularizers.L2(0.5),
        constraint=keras.constraints.MaxNorm(3),
    )
    again = TableConfig.from_dict(through_json(table.to_dict()))
    assert again.initializer.stddev == 0.25
    assert float(again.regularizer.l2) == 0.5
    assert again.constraint.max_value == 3
    assert same(table, again)
    assert not same(table, dataclasses.replace(table, regularizer=keras.regularizers.L2(0.25)))


def test_arrays_and_numpy_numbers_round_trip():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    again = from_plain(through_json(to_plain({"a": array, "n": np.int64(3)})))
    np.testing.assert_array_equal(again["a"], array)
    assert again["a"].dtype == np.float32 and again["n"] == 3


def test_configs_with_arrays_compare_and_hash():
    def table(value):
        return TableConfig("item", 2, 3, initializer=np.full([2, 3], value, np.float32))

    assert table(1) == table(1) != table(2)
    assert hash(table(1)) == hash(table(1))
    assert same(table(1), table(1)) and not same(table(1), table(2))
    assert repr(table(1)).endswith("initializer=FromArray(float32 [2, 3]))")
    assert len({FeatureConfig("f", table(1)), FeatureConfig("f", table(1))}) == 1


def test_an_array_is_not_written_down():
    table = TableConfig("item", 1000, 64, initializer=np.ones([1000, 64]))
    text = json.dumps(table.to_dict())
    assert len(text) < 500
    again = TableConfig.from_dict(json.loads(text))
    assert again.to_dict() == table.to_dict()


def test_configs_with_serialized_keras_objects_hash():
    plain = keras.initializers.serialize(keras.initializers.HeNormal(seed=1))
    table = TableConfig("item", 2, 3, initializer=plain)
    assert hash(table) == hash(table)
    again = TableConfig.from_dict(through_json(table.to_dict()))
    assert same(table, again)


def test_what_cannot_be_plain_is_refused():
    with pytest.raises(TypeError, match="can't be written as plain data"):
        to_plain(object())
    with pytest.raises(ValueError, match="'Nonesuch' is no known spec"):
        from_plain({"class": "Nonesuch"})


def test_a_key_named_class_is_data_unless_it_names_a_spec():
    assert from_plain({"class": {"a": 1}}) == {"class": {"a": 1}}


def test_rows():
    assert TableConfig("t", 10, 4).rows == 10
    assert TableConfig("t", 10, 4, ids=ids.Identity("zero")).rows == 10
    assert TableConfig("t", None, 4, ids=ids.Modulo(7)).rows == 7


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"name": ""}, r"name=''; it must be a non-empty string"),
        ({"name": "a/b"}, r"name='a/b'"),
        ({"vocabulary_size": 0}, r"TableConfig 'item': vocabulary_size=0; .*positive integer"),
        ({"vocabulary_size": 2.5}, r"vocabulary_size=2.5"),
        ({"vocabulary_size": True}, r"vocabulary_size=True"),
        ({"vocabulary_size": None}, r"vocabulary_size=None; .*ids.Modulo\(rows\)"),
        ({"embedding_dim": -1}, r"embedding_dim=-1"),
        ({"ids": "modulo"}, r"ids='modulo'; .*ids.Modulo\(rows\)"),
        ({"ids": ids.Identity(), "vocabulary_size": None}, r"'item': .*vocabulary_size"),
        ({"compression": "tt"}, r"compression='tt'; it must be None"),
        ({"placement": "device"}, r"placement='device'; it must be one of 'auto', 'host'"),
        ({"dtype": "float64"}, r"dtype='float64'; .*'float32', 'bfloat16', 'float16'"),
        ({"seed": "x"}, r"seed='x'"),
        ({"initializer": "unifrom"}, r"TableConfig 'item': unknown initializer 'unifrom'"),
        ({"initializer": 3}, r"TableConfig 'item': unknown initializer 3"),
        ({"initializer": np.ones(3)}, r"TableConfig 'item': FromArray: .*two axes"),
        ({"regularizer": "l3"}, r"TableConfig 'item': .*l3"),
        ({"constraint": "norm"}, r"TableConfig 'item': .*norm"),
        ({"trainable": 1}, r"trainable=1"),
    ],
)
def test_bad_table_fields_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        TableConfig(**{"name": "item", "vocabulary_size": 10, "embedding_dim": 4, **fields})


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"name": 3}, r"FeatureConfig: name=3"),
        ({"table": "item"}, r"FeatureConfig 'f': table='item'; it must be a TableConfig"),
        ({"combiner": "avg"}, r"'f': combiner='avg'; .*'sum', 'mean', 'sqrtn', 'max', None"),
        ({"padding_id": 0.5}, r"'f': padding_id=0.5"),
        ({"padding_id": 2**63}, r"'f': padding_id=9223372036854775808; it must be an int64"),
        ({"max_length": 0}, r"'f': max_length=0; it must be a positive integer or None"),
        ({"max_length": True}, r"'f': max_length=True"),
        ({"keep": "newest"}, r"'f': keep='newest'; it must be one of 'first', 'last'"),
        ({"missing": "zero"}, r"'f': missing='zero'; it must be one of 'error', 'zeros'"),
        ({"position_weights": True}, r"'f': max_length=None; .*position_weights"),
        ({"position_weights": 3, "max_length": 2}, r"'f': position_weights=3; .*True"),
        (
            {"position_weights": True, "max_length": 2, "combiner": "max"},
            r"'f': combiner='max'; it must be 'sum', 'mean' or 'sqrtn' with position_weights",
        ),
        (
            {"position_weights": True, "max_length": 2, "combiner": None},
            r"'f': combiner=None; .*position_weights, which weigh a pool",
        ),
    ],
)
def test_bad_feature_fields_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        FeatureConfig(**{"name": "f", "table": TableConfig("item", 10, 4), **fields})


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"trainable": "no"}, r"PositionWeights: trainable='no'; it is True or False"),
        ({"count_from": 0}, r"PositionWeights: count_from=0; .*'first', 'last'"),
    ],
)
def test_bad_fields_of_position_weights_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        PositionWeights(**fields)


def test_features_with_lengths_and_position_weights():
    item = TableConfig("item", 10, 4)
    feature = FeatureConfig("f", item, "sum", max_length=5, keep="last", position_weights=True)
    assert feature.position_weights == PositionWeights()
    assert repr(feature).endswith(
        "combiner='sum', max_length=5, keep='last', position_weights=PositionWeights())"
    )
    counted = dataclasses.replace(
        feature, position_weights=PositionWeights("zeros", count_from="last"), missing="zeros"
    )
    for config in (feature, counted):
        assert FeatureConfig.from_dict(through_json(config.to_dict())) == config
        assert same(from_plain(through_json(to_plain(config))), config)
    assert len({feature, counted, dataclasses.replace(feature)}) == 2
    assert FeatureConfig("f", item, position_weights=False).position_weights is None


def test_features_saved_before_they_had_lengths():
    old = {
        "class": "FeatureConfig",
        "name": "f",
        "table": TableConfig("item", 10, 4).to_dict(),
        "combiner": "sum",
        "padding_id": None,
    }
    assert from_plain(old) == FeatureConfig("f", TableConfig("item", 10, 4), "sum")
    assert repr(from_plain(old)).endswith("combiner='sum')")


def test_spec_wants_a_frozen_dataclass_and_a_free_name():
    with pytest.raises(TypeError, match="Loose isn't one"):

        @spec
        @dataclasses.dataclass
        class Loose:
            x: int

    with pytest.raises(ValueError, match="Two specs have the name 'Modulo'"):

        @spec
        @dataclasses.dataclass(frozen=True)
        class Modulo:
            x: int
