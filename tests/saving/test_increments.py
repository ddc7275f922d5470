"""What changed since another checkpoint, and how it is known."""

import numpy as np
import pytest
from tensorflow import keras

import merlin_embeddings as me
from tests.saving import models


def one_table(optimizer=None, rows=500, **table):
    symbol = keras.Input((2,), dtype="int64")
    vectors = me.layers.Embedding(rows, 3, combiner="sum", name="item", **table)(symbol)
    model = keras.Model(symbol, keras.layers.Dense(1, kernel_initializer="ones")(vectors))
    model.compile(optimizer or me.optimizers.Adagrad(0.5), "mse")
    return model


def step(model, *ids):
    model.train_on_batch(np.asarray(ids, np.int64).reshape(-1, 2), np.ones((len(ids) // 2, 1)))


def values(model):
    table = me.tables.table_of(model.layers[1].embeddings)
    return [np.asarray(table.variable), *(np.asarray(s.variable) for s in table.slots.values())]


def test_a_chain_is_the_model_at_each_of_its_steps(tmp_path):
    """All kinds of tables; ids come, go, and come again, one is erased by hand."""
    whole, expected = models.model_of(me.optimizers.Adam(0.125)), []
    models.train(whole, 0, 2)
    base = None
    for number in range(4):
        saved = me.save(whole, tmp_path / f"{number}", base=base)
        expected.append(models.state_of(whole))
        assert saved.full == (number == 0)
        base = saved.path
        models.train(whole, number, number + 2)
        users = whole.get_layer(index=models._at(whole)).tables["user"]
        users.erase(next(users.ids.known()).ids[:1])
    target = models.model_of(me.optimizers.Adam(0.125))
    for number in (3, 0, 2):  # and over what another one left
        me.load(target, tmp_path / f"{number}")
        np.testing.assert_equal(models.state_of(target), expected[number])


def test_rows_that_a_step_has_looked_up(tmp_path):
    model = one_table()
    step(model, 3, 4)
    me.save(model, tmp_path / "0")
    step(model, 7, 9, 9, 400)
    saved = me.save(model, tmp_path / "1", base=tmp_path / "0")
    assert (saved.full, saved.rows) == (False, {"item": 3})
    read = [(name, one.keys.tolist()) for name, one in me.checkpoint.changes(tmp_path / "1")]
    assert read == [("item", [7, 9, 400])]
    assert me.save(model, tmp_path / "2", base=tmp_path / "1").rows == {"item": 0}
    # Marks of earlier checkpoints hold on.
    step(model, 8, 8)
    assert me.save(model, tmp_path / "3", base=tmp_path / "0").rows == {"item": 4}
    other = one_table()
    me.load(other, tmp_path / "3")
    np.testing.assert_equal(values(other), values(model))
    # A model that was loaded knows where it is.
    step(other, 1, 2)
    again = me.save(other, tmp_path / "4", base=tmp_path / "3")
    assert (again.full, again.rows) == (False, {"item": 2})


def test_gradients_that_are_being_gathered(tmp_path):
    """Slots change although no step has been made."""
    models_ = [one_table(me.optimizers.SGD(0.5, gradient_accumulation_steps=2)) for _ in range(2)]
    model, other = models_
    step(model, 1, 2)
    step(model, 1, 2)
    me.save(model, tmp_path / "0")
    step(model, 5, 6)
    assert me.save(model, tmp_path / "1", base=tmp_path / "0").rows == {"item": 2}
    me.load(other, tmp_path / "1")
    for one in models_:
        step(one, 6, 7)
    np.testing.assert_equal(values(other), values(model))


def assigned(model):
    model.layers[1].embeddings.assign(np.ones((500, 3), np.float32))


def weights_set(model):
    model.set_weights([w + 1 for w in model.get_weights()])


def compiled_with_a_stock_optimizer(model):
    model.compile(keras.optimizers.SGD(0.5), "mse")
    step(model, 1, 2)


@pytest.mark.parametrize("write", [assigned, weights_set, compiled_with_a_stock_optimizer])
def test_writes_that_nobody_sees_make_the_next_one_full(tmp_path, write):
    model = one_table()
    step(model, 3, 4)
    me.save(model, tmp_path / "0")
    write(model)
    saved = me.save(model, tmp_path / "1", base=tmp_path / "0")
    assert (saved.full, saved.rows) == (True, {"item": 500})
    assert me.checkpoint.Checkpoint(tmp_path / "1").base is None
    other = one_table(model.optimizer.__class__(0.5))
    me.load(other, tmp_path / "1")
    np.testing.assert_array_equal(values(other)[0], values(model)[0])


def test_a_frozen_table_and_a_write_by_hand(tmp_path):
    model = one_table()
    model.layers[1].trainable = False
    model.compile(me.optimizers.Adagrad(0.5), "mse")
    step(model, 1, 2)
    me.save(model, tmp_path / "0")
    step(model, 1, 2)
    assert me.save(model, tmp_path / "1", base=tmp_path / "0").rows == {"item": 0}
    model.layers[1].table.write(me.tables.Entries([17], np.ones((1, 3), np.float32)))
    assert me.save(model, tmp_path / "2", base=tmp_path / "1").rows == {"item": 1}


def test_a_base_that_this_process_does_not_know(tmp_path):
    model, stranger = one_table(), one_table()
    me.save(stranger, tmp_path / "0")
    step(model, 1, 2)
    assert me.save(model, tmp_path / "1", base=tmp_path / "0").full
    with pytest.raises(FileNotFoundError, match="none"):
        me.save(model, tmp_path / "2", base=tmp_path / "none")
    assert not (tmp_path / "2").exists()
