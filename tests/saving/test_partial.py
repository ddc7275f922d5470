"""Some of a checkpoint into a model, and models that aren't quite what the checkpoint is of."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from tests.saving import models


def layer_of(**configs):
    """A layer of tables: name = (rows, dim, and what else TableConfig takes)."""
    features = {
        name: me.FeatureConfig(name, me.TableConfig(name, rows, dim, **more), "sum")
        for name, (rows, dim, more) in configs.items()
    }
    layer = me.layers.Embeddings(features)
    layer.build()
    return layer


def values(layer, name):
    return np.asarray(layer.tables[name].variable)


def by_id(table):
    found = {}
    for entries in table.entries():
        found |= dict(zip(entries.keys.tolist(), entries.vectors.tolist(), strict=True))
    return found


MOVING = {"ids": me.ids.ManagedCollision(64, policy="lru", oov_rows=2)}


def test_by_table_and_renamed(tmp_path):
    layer = layer_of(a=(5, 2, {}), b=(5, 2, {}))
    me.save(layer, tmp_path / "c")
    other = layer_of(a=(5, 2, {}), c=(5, 2, {}), d=(7, 2, {}))
    a, d = values(other, "a"), values(other, "d")
    loaded = me.load(other, tmp_path / "c", tables={"c": "b"})
    assert loaded.tables == {"c": "rows"}
    np.testing.assert_array_equal(values(other, "c"), values(layer, "b"))
    np.testing.assert_array_equal(values(other, "a"), a)
    me.load(other, tmp_path / "c", tables=["a"])
    np.testing.assert_array_equal(values(other, "a"), values(layer, "a"))
    # All that fits.
    other = layer_of(a=(5, 2, {}), c=(5, 2, {}), d=(7, 2, {}))
    loaded = me.load(other, tmp_path / "c", strict=False)
    assert sorted(loaded.left) == [
        "table 'b' isn't in the model",
        "table 'c' isn't in the checkpoint",
        "table 'd' isn't in the checkpoint",
    ]
    np.testing.assert_array_equal(values(other, "a"), values(layer, "a"))
    assert values(other, "d").shape == d.shape


def test_rows_of_another_dtype_are_rounded(tmp_path):
    vectors = np.array([[1 + 2**-9, 1 + 3 * 2**-9], [-3e38, 2**-140]], np.float32)
    layer = layer_of(a=(2, 2, {"initializer": vectors}))
    me.save(layer, tmp_path / "c")
    half = layer_of(a=(2, 2, {"dtype": "bfloat16"}))
    with pytest.raises(ValueError, match="is bfloat16, that of the checkpoint float32"):
        me.load(half, tmp_path / "c")
    me.load(half, tmp_path / "c", strict=False)
    # To the nearest, ties to even, by hand.
    bits = vectors.view(np.uint32)
    expected = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    assert expected[0].tolist() == [1.0, 1 + 2**-7]
    got = tf.cast(half.tables["a"].variable, tf.float32).numpy()
    np.testing.assert_array_equal(got, expected)
    back = layer_of(a=(2, 2, {}))
    me.save(half, tmp_path / "half")
    me.load(back, tmp_path / "half", strict=False)
    np.testing.assert_array_equal(values(back, "a"), expected)
    small = layer_of(a=(2, 2, {"dtype": "float16"}))
    with pytest.raises(ValueError, match=r"-3.0.*e\+38 of the checkpoint is beyond float16"):
        me.load(small, tmp_path / "c", strict=False)


def test_another_dim_is_an_error(tmp_path):
    me.save(layer_of(a=(5, 2, {})), tmp_path / "c")
    for strict in (True, False):
        other = layer_of(a=(5, 3, {}))
        before = values(other, "a")
        with pytest.raises(ValueError, match="Table 'a' has vectors of 3 columns"):
            me.load(other, tmp_path / "c", strict=strict)
        np.testing.assert_array_equal(values(other, "a"), before)


def test_a_vocabulary_that_has_grown(tmp_path):
    """New rows are those that the table would have had."""
    layer = layer_of(a=(5, 2, {}))
    layer.tables["a"].write(me.tables.Entries([4], np.full((1, 2), 7, np.float32)))
    me.save(layer, tmp_path / "c")
    grown = layer_of(a=(9, 2, {}))
    grown.tables["a"].variable.assign(np.full((9, 2), 3, np.float32))
    with pytest.raises(ValueError, match="4 new ones start anew"):
        me.load(grown, tmp_path / "c")
    loaded = me.load(grown, tmp_path / "c", strict=False)
    assert loaded.tables == {"a": "rows, 4 new ones start anew"}
    np.testing.assert_array_equal(values(grown, "a")[:5], values(layer, "a"))
    large = layer_of(a=(9, 2, {"seed": layer.tables["a"].seed}))
    np.testing.assert_array_equal(values(grown, "a")[5:], values(large, "a")[5:])
    with pytest.raises(ValueError, match="none can be left out"):
        me.load(layer_of(a=(4, 2, {})), tmp_path / "c", strict=False)


def test_lists_of_ids_by_id(tmp_path):
    layer = layer_of(a=(None, 2, {"ids": me.ids.Vocabulary(["Rome", "Oslo", "Bonn"])}))
    me.save(layer, tmp_path / "c")
    longer = me.ids.Vocabulary(["Lima", "Bonn", "Rome", "Kyiv", "Oslo"])
    other = layer_of(a=(None, 2, {"ids": longer}))
    before = values(other, "a")
    with pytest.raises(ValueError, match="by ids"):
        me.load(other, tmp_path / "c")
    me.load(other, tmp_path / "c", tables="a", strict=False)
    expected = before.copy()
    expected[[2, 4, 1]] = values(layer, "a")
    np.testing.assert_array_equal(values(other, "a"), expected)


def test_numbers_and_lists_into_a_table_whose_rows_move(tmp_path):
    layer = layer_of(
        a=(6, 2, {}), b=(None, 2, {"ids": me.ids.Vocabulary([70, -10, 30])}), c=(None, 2, MOVING)
    )
    layer.tables["c"].upsert([5, 6, -7])
    me.save(layer, tmp_path / "c")
    wider = {"ids": me.ids.ManagedCollision(128, policy="lfu", oov_rows=2)}
    other = layer_of(a=(None, 2, MOVING), b=(None, 2, MOVING), c=(None, 2, wider))
    with pytest.raises(ValueError, match="by ids"):
        me.load(other, tmp_path / "c")
    loaded = me.load(other, tmp_path / "c", strict=False)
    assert set(loaded.tables.values()) == {"by ids"}
    a, b = values(layer, "a").tolist(), values(layer, "b").tolist()
    assert by_id(other.tables["a"]) == dict(enumerate(a))
    assert by_id(other.tables["b"]) == dict(zip([70, -10, 30], b, strict=True))
    assert by_id(other.tables["c"]) == by_id(layer.tables["c"])
    shared = [values(one, "c")[one.tables["c"].capacity :] for one in (other, layer)]
    np.testing.assert_array_equal(*shared)


def test_modulo_into_a_table_whose_rows_move(tmp_path):
    """Ids that shared a row begin with the same vector, and part from there."""
    layer = layer_of(a=(None, 2, {"ids": me.ids.Modulo(10)}))
    me.save(layer, tmp_path / "c")
    other = layer_of(a=(None, 2, MOVING))
    with pytest.raises(ValueError, match="Give ids="):
        me.load(other, tmp_path / "c", strict=False)
    ids = np.array([3, 13, 27, 104])
    me.load(other, tmp_path / "c", tables="a", ids={"a": ids})
    expected = {int(id): values(layer, "a")[id % 10].tolist() for id in ids}
    assert by_id(other.tables["a"]) == expected
    # As they were, and as they are.
    named = layer_of(a=(None, 2, MOVING))
    me.load(named, tmp_path / "c", ids={"a": ([3, 27], ["Rome", "Oslo"])})
    rome, oslo = named({"a": tf.constant([["Rome"], ["Oslo"]])})["a"].numpy()
    np.testing.assert_array_equal([rome, oslo], values(layer, "a")[[3, 7]])
    with pytest.raises(KeyError, match="ids= names table 'b'"):
        me.load(named, tmp_path / "c", ids={"b": ids})


def test_another_optimizer(tmp_path):
    model = models.model_of(me.optimizers.Adam(0.125))
    models.train(model)
    me.save(model, tmp_path / "c")
    other = models.model_of(me.optimizers.Adagrad(0.125, initial_accumulator_value=0.5))
    models.train(other)
    before = models.state_of(other)
    with pytest.raises(ValueError, match="Table 'item': the model's optimizer keeps 'accumulator'"):
        me.load(other, tmp_path / "c")
    np.testing.assert_equal(models.state_of(other), before)
    loaded = me.load(other, tmp_path / "c", strict=False)
    assert any("optimizer's variables" in fault for fault in loaded.left)
    ours, theirs = (one.get_layer(index=models._at(one)).tables["item"] for one in (other, model))
    np.testing.assert_array_equal(np.asarray(ours.variable), np.asarray(theirs.variable))
    assert (np.asarray(ours.slots["accumulator"].variable) == 0.5).all()
    # To predict, no optimizer is needed.
    plain = keras.models.clone_model(model)
    me.load(plain, tmp_path / "c")
    some = {name: ids[:8] for name, ids in models.X.items()}
    np.testing.assert_allclose(plain(some), model(some), rtol=1e-6)


def test_bad_input(tmp_path):
    layer = layer_of(a=(5, 2, {}))
    me.save(layer, tmp_path / "c")
    with pytest.raises(FileExistsError):
        me.save(layer, tmp_path / "c")
    with pytest.raises(TypeError, match="metadata must be plain"):
        me.save(layer, tmp_path / "d", metadata={"a": object()})
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        me.load(layer, tmp_path / "d")
    with pytest.raises(KeyError, match="No table 'b' in the model"):
        me.load(layer, tmp_path / "c", tables=["b"])
    with pytest.raises(KeyError, match=r"No table 'b' in .*; it has"):
        me.load(layer, tmp_path / "c", tables={"a": "b"})
    with pytest.raises(ValueError, match="has no weights yet"):
        me.save(me.layers.Embedding(3, 2), tmp_path / "d")
    bloom = layer_of(a=(None, 2, {"compression": me.tables.Bloom(5)}))
    with pytest.raises(ValueError, match="their parameters have nothing in common"):
        me.load(bloom, tmp_path / "c", strict=False)
    assert [one.name for one in tmp_path.iterdir()] == ["c"]


def test_names(tmp_path):
    """Tables are called by their own names, or by their layers'; copies find each other."""

    def build(*names):
        symbol = keras.Input((2,), dtype="int64")
        vectors = [me.layers.Embedding(4, 2, **name)(symbol) for name in names]
        return keras.Model(symbol, keras.layers.Concatenate()(vectors))

    unnamed = build({}, {})
    me.save(unnamed, tmp_path / "unnamed")
    again = build({}, {})
    me.load(again, tmp_path / "unnamed")
    np.testing.assert_equal(again.get_weights(), unnamed.get_weights())
    one_name = build({"name": "x", "table_name": "t"}, {"name": "y", "table_name": "t"})
    me.save(one_name, tmp_path / "one")
    assert list(me.checkpoint.Checkpoint(tmp_path / "one").tables) == ["x/t", "y/t"]
    with pytest.raises(ValueError, match="table 'item_2' isn't in the checkpoint"):
        me.save(build({"name": "item_1"}), tmp_path / "item")
        me.load(build({"name": "item_2"}), tmp_path / "item")


def test_a_copy_whose_layers_were_built_otherwise(tmp_path):
    symbol = keras.Input((2,), dtype="int64")
    deep = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(3)], name="deep")
    model = keras.Model(symbol, deep(me.layers.Embedding(5, 3, combiner="sum")(symbol)))
    copy = keras.models.clone_model(model)
    me.save(model, tmp_path / "c")
    me.load(copy, tmp_path / "c")
    np.testing.assert_equal(copy.get_weights(), model.get_weights())


@pytest.mark.parametrize(
    "of",
    [
        lambda: me.optimizers.SGD(0.1, momentum=0.5),
        lambda: keras.optimizers.SGD(0.1, momentum=0.5),
        lambda: me.optimizers.Split(keras.optimizers.Adam(0.1), me.optimizers.SGD(0.1, 0.5)),
    ],
)
def test_an_optimizer_that_keeps_as_much_of_another_kind(tmp_path, of):
    """SGD's momentum is no mean of squares, whatever it is called."""

    def model_of(optimizer):
        item = me.layers.Embedding(6, 2, combiner="sum", name="item")
        model = keras.Sequential([keras.Input((2,), dtype="int64"), item])
        model.compile(optimizer, "mse")
        return model

    model = model_of(of())
    model.train_on_batch(np.array([[1, 2]]), np.ones((1, 2)))
    me.save(model, tmp_path / "c")
    other = model_of(me.optimizers.RMSprop(0.1))
    with pytest.raises(ValueError, match=r"optimizer is rmsprop, that of the checkpoint sgd|keeps"):
        me.load(other, tmp_path / "c")
    with pytest.raises(ValueError, match=r"Table 'item': the model's optimizer"):
        me.load(other, tmp_path / "c", tables=["item"])
    loaded = me.load(other, tmp_path / "c", strict=False)
    assert any("optimizer" in one for one in loaded.left)
    table = me.tables.table_of(other.layers[0].embeddings)
    for slot in table.slots.values():
        assert (np.asarray(slot.variable) == slot.fill).all()
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])

    class Mine(type(me.optimizers.SGD(0.1))):
        pass

    # A class derived from one, or the same rule of Keras's and ours, keeps the same.
    if not isinstance(model.optimizer, me.optimizers.Split):
        same = model_of(Mine(0.1, momentum=0.5))
        assert same.optimizer.__class__.__name__ == "Mine"
        me.load(same, tmp_path / "c", tables=["item"], strict=False)
        table = me.tables.table_of(same.layers[0].embeddings)
        (slot,) = table.slots.values()
        assert np.asarray(slot.variable).any() == isinstance(model.optimizer, me.optimizers.SGD)


def test_a_model_that_is_not_built(tmp_path):
    """Its optimizer isn't built, either, or it would never keep what later weights need."""

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.item = me.layers.Embedding(6, 2, combiner="sum", table_name="item")
            self.score = keras.layers.Dense(1)

        def call(self, ids):
            return self.score(self.item(ids))

    def model_of(partly):
        model = Model()
        model.compile(me.optimizers.Adam(0.1), "mse")
        if partly:
            model.item.build()
        return model

    ids, ones = np.array([[1, 2]]), np.ones((1, 1))
    whole = model_of(False)
    whole.train_on_batch(ids, ones)
    me.save(whole, tmp_path / "c")
    for partly in (False, True):
        model = model_of(partly)
        message = "has no weights yet, or not all of them"
        with pytest.raises(ValueError, match=message):
            me.save(model, tmp_path / "d")
        with pytest.raises(ValueError, match=message):
            me.load(model, tmp_path / "c")
        model(ids)
        me.load(model, tmp_path / "c")
        model.train_on_batch(ids, ones)
    whole.train_on_batch(ids, ones)
    np.testing.assert_array_equal(model.get_weights()[0], whole.get_weights()[0])


def test_names_like_those_of_shared_rows(tmp_path):
    layer = layer_of(**{"a": (5, 2, {}), "a:oov": (7, 2, {})})
    me.save(layer, tmp_path / "c")
    other = layer_of(**{"a": (5, 2, {}), "a:oov": (7, 2, {})})
    assert set(me.load(other, tmp_path / "c").tables) == {"a", "a:oov"}
    np.testing.assert_array_equal(values(other, "a:oov"), values(layer, "a:oov"))
    both = layer_of(**{"a": (None, 2, MOVING), "a:oov": (7, 2, {})})
    with pytest.raises(ValueError, match=r"Table 'a:oov' has the name that .* table 'a' share"):
        me.save(both, tmp_path / "d")
