"""A table whose rows move, looked into and written by id."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.tables import Entries

IDS = np.array([7, -(2**63), 2**63 - 1, 0, 5])


def table_of(capacity=32, optimizer=None, **more):
    ids = me.ids.ManagedCollision(capacity, **{"policy": "lfu", **more.pop("map", {})})
    layer = me.layers.Embedding(None, 3, ids=ids, **{"seed": 3, **more})
    layer.build()
    if optimizer is not None:
        optimizer.build(layer.trainable_variables)
    layer.table.keeps_alive = layer, optimizer
    return layer.table


def fresh(ids, table):
    law = me.initializers.Uniform()
    keys = tf.constant(ids, tf.int64)
    return law.rows(keys, 3, "float32", 3, table.name, table.rows).numpy()


def by_id(table):
    return {int(k): v for e in table.entries() for k, v in zip(e.keys, e.vectors, strict=True)}


def test_upserted_ids_start_as_the_initializer_says_for_the_id():
    table = table_of()
    rows = table.upsert(IDS)
    assert len(set(rows)) == 5 and (rows >= 0).all() and table.size() == 5
    np.testing.assert_array_equal(table.find([*IDS, 1]), [*rows, -1])
    held = by_id(table)
    np.testing.assert_array_equal([held[i] for i in IDS.tolist()], fresh(IDS, table))
    # Again: nothing starts anew.
    table.write(Entries(keys=IDS, vectors=np.ones((5, 3), np.float32)))
    np.testing.assert_array_equal(table.upsert(IDS[:2]), rows[:2])
    assert all((v == 1).all() for v in by_id(table).values())


def test_a_seed_of_none_draws_other_values_for_each_model_and_keeps_them():
    keras.utils.set_random_seed(1)
    one, other = table_of(seed=None), table_of(seed=None)
    one.upsert(IDS)
    other.upsert(IDS)
    assert (by_id(one)[7] != by_id(other)[7]).any()
    before = by_id(one)
    one.erase(IDS)
    one.upsert(IDS)
    np.testing.assert_equal(by_id(one), before)


def test_entries_have_scores_and_slots_and_come_in_bounded_parts():
    table = table_of(64, me.optimizers.Adagrad(0.1, initial_accumulator_value=0.5))
    table.upsert(np.arange(40), scores=np.arange(40) + 1)
    parts = list(table.entries(chunk=7))
    assert all(len(part) <= 7 for part in parts)
    scores = {k: s for p in parts for k, s in zip(p.keys.tolist(), p.scores.tolist(), strict=True)}
    assert scores == {id: id + 1 for id in range(40)}
    assert all((part.slots["accumulator"] == 0.5).all() for part in parts)
    [some] = table.entries(keys=[5, 1000, 3])
    assert some.keys.tolist() == [5, 3]
    np.testing.assert_array_equal(some.vectors, fresh([5, 3], table))


def test_write_and_read_back_with_slots_scores_and_erased_ids():
    table = table_of(optimizer=me.optimizers.Adam(0.1))
    table.upsert([1, 2, 3])
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    momentum = vectors + 10
    table.write(Entries([2, 9], vectors, {"momentum": momentum}, np.array([50, 60]), erased=[1]))
    [entries] = table.entries(keys=[2, 9])
    np.testing.assert_array_equal(entries.vectors, vectors)
    np.testing.assert_array_equal(entries.slots["momentum"], momentum)
    np.testing.assert_array_equal(entries.slots["velocity"], np.zeros((2, 3)))
    held = {
        k: s
        for e in table.entries()
        for k, s in zip(e.keys.tolist(), e.scores.tolist(), strict=True)
    }
    assert held[2] == 50 and held[9] == 60 and set(held) == {2, 3, 9}


def test_a_table_moves_to_another_with_all_that_it_knows():
    one, other = table_of(map={"policy": "lru"}), table_of(64, map={"policy": "lru"}, seed=9)
    one.upsert(np.arange(20), scores=np.arange(20))
    for entries in one.entries(chunk=6):
        other.write(entries)
    np.testing.assert_equal(by_id(other), by_id(one))
    scores = [
        {k: s for e in t.entries() for k, s in zip(e.keys.tolist(), e.scores.tolist(), strict=True)}
        for t in (one, other)
    ]
    assert scores[0] == scores[1]


def test_erase_and_restrict_forget_and_what_comes_back_is_fresh():
    table = table_of()
    table.write(Entries(IDS, np.full((5, 3), 9, np.float32), scores=np.array([1, 2, 3, 4, 5])))
    np.testing.assert_array_equal(table.erase([7, 8]), [True, False])
    gone = table.restrict(size=2)
    assert sorted(gone.ids.tolist()) == sorted(IDS[1:3].tolist())
    assert set(by_id(table)) == {0, 5} and table.size() == 2
    table.upsert([7])
    np.testing.assert_array_equal(by_id(table)[7], fresh([7], table)[0])
    assert (by_id(table)[0] == 9).all()


def test_reset_gives_first_values_again_and_leaves_unknown_ids_alone():
    table = table_of(optimizer=me.optimizers.Adagrad(0.1, initial_accumulator_value=0.5))
    accumulators = {"accumulator": np.full((2, 3), 7, np.float32)}
    table.write(Entries([1, 2], np.full((2, 3), 9, np.float32), accumulators))
    table.reset([1, 77])
    [entries] = table.entries(keys=[1, 2])
    np.testing.assert_array_equal(entries.vectors[0], fresh([1], table)[0])
    assert (entries.vectors[1] == 9).all()
    np.testing.assert_array_equal(entries.slots["accumulator"][:, 0], [0.5, 7])
    assert table.size() == 2


def test_changes_since_a_mark_are_told_by_id():
    table = table_of(optimizer=me.optimizers.SGD(0.1))
    table.upsert([1, 2, 3])
    mark = table.mark()
    table.write(Entries([2], np.ones((1, 3), np.float32)))
    table.keeps_alive[0](tf.constant([4]), training=True)  # a new id: its row started
    changed = [int(k) for entries in table.entries(since=mark) for k in entries.keys]
    assert sorted(changed) == [2, 4]
    assert list(table.entries(since=table.mark())) == []


def test_more_ids_than_rows_leaves_those_of_the_highest_scores():
    table = table_of(16)
    vectors = np.arange(120, dtype=np.float32).reshape(40, 3)
    table.write(Entries(np.arange(40), vectors, scores=np.arange(40)))
    held = by_id(table)
    assert len(held) == table.capacity == 16
    for id, vector in held.items():
        np.testing.assert_array_equal(vector, vectors[id])
    assert set(range(30, 40)) <= set(held)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (Entries([1], np.ones((1, 4), np.float32)), "have 4 columns, the table has 3"),
        (Entries([1], np.ones((1, 3), np.float32), {"m": np.ones((1, 3))}), "unknown slot 'm'"),
        (Entries([1], np.ones((1, 3), np.float32), scores=[-1]), r"score -1 is out of range"),
        (Entries([1], np.ones((1, 3), np.float32), scores=[2**32]), r"out of range \[0, 2\*\*32\)"),
        (Entries([1], np.ones((1, 3), np.float32), scores=[0.5]), "scores must be .N. integers"),
    ],
)
def test_bad_entries_change_nothing(entries, message):
    table = table_of()
    table.upsert([5])
    before = [v.numpy() for v in table.keeps_alive[0].weights]
    with pytest.raises(ValueError, match=f"table 'embeddings': .*{message}"):
        table.write(entries)
    for variable, value in zip(table.keeps_alive[0].weights, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_bad_ids():
    table = table_of()
    with pytest.raises(ValueError, match="ids must be a list of integers"):
        table.find([0.5])
    with pytest.raises(ValueError, match=r"9223372036854775809 is no int64.*ids\.view"):
        table.find(np.array([1, 2**63 + 1], np.uint64))
    assert table.find(np.array([1], np.uint64)).tolist() == [-1]
    with pytest.raises(ValueError, match="holds 1 more than once"):
        table.upsert([1, 1])
    with pytest.raises(ValueError, match="vectors must be"):
        table.upsert([1], np.ones((2, 3)))
    assert table.size() == 0


@pytest.mark.parametrize(
    "given",
    [
        {"embeddings_initializer": keras.initializers.Orthogonal()},
        {"weights": np.ones((32, 3))},
    ],
)
def test_initializers_that_make_whole_tables_only(given):
    with pytest.raises(ValueError, match=r"table 'embeddings'.*one by one.*table.write"):
        me.layers.Embedding(None, 3, ids=me.ids.ManagedCollision(32), **given)


def test_memory_follows_use():
    """A table of 2 GiB and a slot are made, used and saved, and only rows in use are touched."""
    with open("/proc/self/statm") as file:
        before = int(file.read().split()[1])
    big = me.layers.Embedding(None, 128, ids=me.ids.Dynamic(1000, 2**22), seed=1)
    big.build()
    optimizer = me.optimizers.Adagrad(0.1, initial_accumulator_value=0.0)
    optimizer.build(big.trainable_variables)
    for begin in range(0, 40_000, 10_000):
        big(tf.range(begin, begin + 10_000), training=True)
        big.table.release()
    assert big.table.save()["vectors"].shape == (40_000, 128)
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1]) - before
    assert 20 < pages * 4096 / 2**20 < 200
