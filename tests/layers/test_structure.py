"""Structures of features and inputs that match them, or don't."""

import pytest

from merlin_embeddings import FeatureConfig, TableConfig
from merlin_embeddings.layers import structure

TABLE = TableConfig("item", 9, 2)
A, B, C = (FeatureConfig(name, TABLE) for name in "abc")
NESTED = {"a": A, "more": [B, (C,)]}


def test_flatten_match_pack():
    assert structure.flatten(NESTED) == [A, B, C]
    inputs = {"more": [2, (3,)], "a": 1, "price": 0}
    assert structure.match(NESTED, inputs) == [1, 2, 3]
    assert structure.pack(NESTED, iter("xyz")) == {"a": "x", "more": ["y", ("z",)]}


def test_weights_may_be_left_out():
    assert structure.match_weights(NESTED, None) == [None, None, None]
    assert structure.match_weights(NESTED, {"a": 1}) == [1, None, None]
    assert structure.match_weights(NESTED, {"more": [None, (3,)]}) == [None, None, 3]


def test_bags_as_dicts_are_leaves():
    bags = {"values": 1, "row_splits": 2}
    assert structure.match({"a": A}, {"a": bags}) == [bags]


@pytest.mark.parametrize("features", [{}, [], {"a": []}])
def test_no_features(features):
    with pytest.raises(ValueError, match="features has no FeatureConfig"):
        structure.flatten(features)


@pytest.mark.parametrize(
    "features, message",
    [
        ({0: A}, "features has the key 0; .*Use strings"),
        ([{"a": A, ("b",): B}], r"features has the key \('b',\)"),
        ({"x": {"class_name": A, "config": B}}, "both keys 'class_name' and 'config'.*Rename one"),
    ],
)
def test_keys_that_keras_cannot_save(features, message):
    with pytest.raises(ValueError, match=message):
        structure.flatten(features)


def test_no_feature():
    with pytest.raises(ValueError, match="FeatureConfigs in dicts, lists or tuples; got 'a'"):
        structure.flatten(["a"])


@pytest.mark.parametrize(
    "features, inputs, message",
    [
        ({"a": A}, [1], r"inputs must be a dict with the features \['a'\]; got a list"),
        ({"a": A}, {"b": 1}, r"feature 'a' isn't in the inputs, which have \['b'\]"),
        (
            {"a": A},
            {"a__values": 1},
            r"only 'a__values'. Give 'a', or the pair 'a__values' and 'a__o",
        ),
        ({"a": [A]}, {"a__values": 1, "a__offsets": 1}, r"feature 'a' isn't in the inputs"),
        ([A, B], [1], r"inputs must be a list of 2, one for each of the features; got a list of 1"),
        ((A, B), {"a": 1}, r"inputs must be a tuple of 2, .*got a dict"),
    ],
)
def test_inputs_of_another_structure(features, inputs, message):
    with pytest.raises(ValueError, match=message):
        structure.match(features, inputs)


@pytest.mark.parametrize(
    "features, weights, message",
    [
        ({"a": A}, {"b": 1}, r"weights for \['b'\], which are no features; features are \['a'\]"),
        ({"a": A}, 1.0, r"weights must be a dict with the features \['a'\]; got a float"),
        ([A, B], [1], r"weights must be a list of 2"),
    ],
)
def test_weights_of_another_structure(features, weights, message):
    with pytest.raises(ValueError, match=message):
        structure.match_weights(features, weights)
