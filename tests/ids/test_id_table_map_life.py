"""Stateful maps in graphs, their memory, their state in files, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_embeddings import config, ids, native
from tests.ids.maps import build, changes_of, known, longs, oracle_of

MANAGED = ids.ManagedCollision(32, "lru", oov_rows=2)
WIDE = ids.ManagedCollision(160, "lru")  # more buckets than an id has


def trained(spec, steps=3):
    map, random = build(spec), np.random.default_rng(0)
    for _ in range(steps):
        map.assign(longs(random.integers(0, 100, 20)), training=True)
    return map


def test_one_row_an_id_and_frozen_when_not_training():
    map = build(MANAGED)
    rows, changes = map.assign(longs([5, 7, 5, -9]), training=True)
    row = rows.numpy().tolist()
    assert row[0] == row[2] and len(set(row)) == 3 and max(row) < 32
    assert sorted(changes_of(changes)) == sorted(
        [(row[0], 5, None), (row[1], 7, None), (row[3], -9, None)]
    )
    before = map.state()
    again, changes = map.assign(longs([-9, 5, 8]))
    assert changes is None
    assert again.numpy().tolist()[:2] == [row[3], row[0]] and again.numpy()[2] in (32, 33)
    assert map.find(longs([8, 7])).numpy().tolist() == [-1, row[1]]
    for name, values in map.state().items():
        np.testing.assert_array_equal(values, before[name])


def test_a_graph_runs_the_same_steps():
    eager, graph = build(MANAGED), build(MANAGED)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)] * 2)
    def step(ids, more):
        rows, changes = graph.assign_features([ids, more], padding=[0, None], training=True)
        with tf.control_dependencies(rows):
            graph.release()
        return rows, changes

    random = np.random.default_rng(0)
    for _ in range(5):
        batch, more = longs(random.integers(0, 50, 20)), longs(random.integers(0, 50, 9))
        rows, changes = eager.assign_features([batch, more], padding=[0, None], training=True)
        eager.release()
        its_rows, its_changes = step(batch, more)
        for wanted, found in zip(rows, its_rows, strict=True):
            np.testing.assert_array_equal(wanted, found)
        assert changes_of(changes) == changes_of(its_changes)
    assert known(eager) == known(graph)
    assert int(eager.statistics()["evicted"]) > 0


def test_order_of_ids_and_lists_changes_nothing():
    """Ids of a step in another order, split into features otherwise, counted beforehand."""
    spec = ids.ManagedCollision(32, "lfu", admit_after=2)
    whole, split, counted = build(spec), build(spec), build(spec)
    random = np.random.default_rng(0)
    for _ in range(6):
        for map in (whole, split, counted):
            map.release()
        batch = random.zipf(1.3, 60) % 90
        whole.assign(longs(batch), training=True)
        random.shuffle(batch)
        split.assign_features([longs(batch[:11]), longs(batch[11:])], training=True)
        values, counts = np.unique(batch, return_counts=True)
        counted.assign(longs(values), counts=longs(counts), training=True)
    assert known(whole) == known(split) == known(counted)
    assert int(whole.statistics()["evicted"]) > 0


def test_rows_of_open_steps_stay():
    map = build(ids.ManagedCollision(16, "lru", open_routes=2))
    map.assign(longs(range(16)), training=True)
    for step in range(3):
        rows, _ = map.assign(longs([100 + step]), training=True)
        # Two newer steps may be made; at the third, rows of the first may go.
        assert (int(rows[0]) == -1) == (step < 2)
    assert int(map.statistics()["overflowed"]) == 2
    map.release()
    rows, changes = map.assign(longs(range(200, 216)), training=True)
    assert min(rows.numpy()) >= 0 and changes.had_old.numpy().all()


def test_what_was_read_before_stays_as_it_was():
    map = trained(MANAGED)
    held = {v.name: (v.read_value(), v.numpy().copy()) for v in map.variables}
    map.assign(longs(range(500, 540)), training=True)
    for value, copy in held.values():
        np.testing.assert_array_equal(value, copy)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_memory_follows_use():
    before = resident()
    map = build(ids.Dynamic(initial=1000, max_rows=2**27))
    reserved = sum(int(np.prod(v.shape)) * v.dtype.size for v in map.variables)
    assert reserved > 2**31
    map.assign(longs(range(1000)), training=True)
    assert resident() - before < 64 * 2**20
    rows, _ = map.assign(longs(range(500, 3000)), training=True)
    assert sorted(map.find(longs(range(3000))).numpy()) == list(range(3000))
    assert resident() - before < 64 * 2**20
    assert rows.shape == [2500]


@pytest.mark.parametrize(
    ("spec", "bytes"),
    [
        (ids.ManagedCollision(10**6), 15),
        (ids.ManagedCollision(10**6, admit_after=3), 19),
    ],
)
def test_bytes_a_slot(spec, bytes):
    map = build(spec)
    total = sum(int(np.prod(v.shape)) * v.dtype.size for v in map.variables)
    assert 10**6 <= map.capacity < 1.016 * 10**6
    assert total / map.capacity == pytest.approx(bytes, abs=0.1)


# State


@pytest.mark.parametrize(
    "spec",
    [
        MANAGED,
        ids.ManagedCollision(32, "lfu", admit_after=2),
        ids.Dynamic(2, 64, when_full="lru"),
    ],
    ids=str,
)
def test_a_resumed_run_is_the_same_run(spec):
    map = trained(spec)
    again = trained(spec, steps=1)
    again.restore(map.state())
    random = np.random.default_rng(5)
    for _ in range(5):
        batch = longs(random.integers(0, 150, 30))
        rows, changes = map.assign(batch, training=True)
        its_rows, its_changes = again.assign(batch, training=True)
        np.testing.assert_array_equal(rows, its_rows)
        assert changes_of(changes) == changes_of(its_changes)
    assert known(map) == known(again)


def test_a_state_holds_used_slots_only():
    map = build(ids.ManagedCollision(10**6, admit_after=2))
    map.assign(longs([1, 2, 2, 3, 3]), training=True)
    state = map.state()
    assert state["ids"].size == 2
    assert sum(values.nbytes for values in state.values()) < 4096


def broken(name, change):
    state = trained(WIDE).state()
    state[name] = change(state[name])
    return state


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (dict, "a state of ids has"),
        (lambda: broken("ids", lambda x: x[:-1]), "'slots' of its ids' state"),
        (lambda: broken("meters", lambda x: x[:-1]), "'meters' of its ids' state"),
        (lambda: broken("meters", lambda x: -x), "the meters of its ids"),
        (lambda: broken("scores", lambda x: x.astype(float)), "'scores' of its ids' state"),
        (lambda: broken("scores", lambda x: x + 2**32), r"scores are in \[0, 2\*\*32\)"),
        (lambda: broken("ids", lambda x: x + 1), "isn't where it can be"),
        (lambda: broken("slots", lambda x: x - 1000), "isn't where it can be"),
        (lambda: broken("slots", lambda x: x + 1000), "isn't where it can be"),
        (lambda: trained(ids.ManagedCollision(64, "lru")).state(), "'|can't be|it can be"),
        (lambda: trained(ids.Dynamic(8, 200)).state(), "can't be|it can be"),
    ],
)
def test_a_broken_state_changes_nothing(state, message):
    map = trained(WIDE, steps=2)
    before = map.state()
    with pytest.raises(ValueError, match=f"table 'item': .*(?:{message})"):
        map.restore(state())
    for name, values in map.state().items():
        np.testing.assert_array_equal(values, before[name], err_msg=name)
    assert map.assign(longs([1]), training=True)[1] is not None


def test_meters_that_point_outside_are_refused():
    """As a checkpoint of raw variables may have them."""
    map = trained(ids.Dynamic(8, 64))
    for meter, value in [("active", 3), ("active", 64), ("free_from", 99), ("used", -1)]:
        meters = map.variables[-1].numpy()
        meters[native.METERS.index(meter)] = value
        before = map.variables[-1].numpy()
        map.variables[-1].assign(meters)
        with pytest.raises(tf.errors.DataLossError, match="table 'item': the meters"):
            map.assign(longs([1]), training=True)
        map.variables[-1].assign(before)
    map.assign(longs([1]), training=True)


# Bad input


def test_an_id_without_a_place_in_the_index_is_an_error():
    """Ids made up to have the same two buckets, more of them than these have slots."""
    spec = ids.Dynamic(300, 300)
    map = build(spec)
    places, alike, id = oracle_of(spec, map), [], 0
    wanted = set(places.buckets(0))
    while len(alike) < 33:
        if set(places.buckets(id)) == wanted:
            alike.append(id)
        id += 1
    map.assign(longs(alike[:32]), training=True)
    with pytest.raises(tf.errors.ResourceExhaustedError, match=f"id {alike[32]} has no place"):
        map.assign(longs([*alike, 2**40]), training=True)
    assert map.find(longs([alike[32], 2**40])).numpy().tolist() == [-1, -1]
    assert sorted(map.find(longs(alike[:32])).numpy()) == list(range(32))
    rows, changes = map.assign(longs([2**40]), training=True)
    assert changes_of(changes) == [(32, 2**40, None)] and rows.numpy() == [32]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counts": [longs([1])]}, "1 counts for 2 ids"),
        ({"counts": [longs([1, 0])]}, "count 0 of id 4 at position 1; counts are at least 1"),
        ({"counts": [longs([-3, 1])]}, "count -3 of id 3 at position 0"),
    ],
)
def test_bad_counts_change_nothing(arguments, message):
    map = trained(MANAGED)
    before = map.state()
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"feature 'f': {message}"):
        map.assign_features(
            [longs([3, 4])], training=True, names=["table 'item', feature 'f'"], **arguments
        )
    for name, values in map.state().items():
        np.testing.assert_array_equal(values, before[name])


@pytest.mark.parametrize(
    ("scores", "error", "message"),
    [
        ([1], tf.errors.InvalidArgumentError, "1 scores for 2 ids; there must be one an id"),
        ([1, -1], tf.errors.InvalidArgumentError, "score -1 of id 4 at position 1"),
        ([2**32, 1], tf.errors.InvalidArgumentError, "score 4294967296 of id 3 at position 0"),
        (None, ValueError, "f: the policy Custom goes by scores"),
    ],
)
def test_bad_scores(scores, error, message):
    map = build(ids.ManagedCollision(32, "custom"))
    given = None if scores is None else longs(scores)
    with pytest.raises(error, match=message):
        map.assign(longs([3, 4]), scores=given, training=True, name="f")
    assert known(map) == [] and int(map.statistics()["steps"]) == 0


def test_scores_for_a_policy_that_makes_its_own():
    with pytest.raises(ValueError, match="f: scores are for the policy"):
        build(MANAGED).assign(longs([3]), scores=longs([1]), training=True, name="f")


def test_padding_needs_no_good_count_or_score():
    map = build(ids.ManagedCollision(32, "custom"))
    rows, _ = map.assign_features(
        [longs([0, 5])],
        padding=[0],
        counts=[longs([0, 1])],
        scores=[longs([-1, 1])],
        training=True,
    )
    assert rows[0].numpy()[0] == -1 and rows[0].numpy()[1] >= 0


@pytest.mark.parametrize("scores", [[1], [1, -1], [1, 2**32]])
def test_bad_upserts_change_nothing(scores):
    map = build(MANAGED)
    with pytest.raises(tf.errors.InvalidArgumentError, match="table 'item'"):
        map.upsert(longs([3, 4]), longs(scores))
    assert known(map) == []


@pytest.mark.parametrize(
    ("spec", "limits", "message"),
    [
        (MANAGED, {}, "takes one of size, max_age, min_count and min_score"),
        (MANAGED, {"size": 1, "max_age": 1}, "takes one of"),
        (MANAGED, {"size": -1}, "size=-1"),
        (MANAGED, {"size": 1.5}, "size=1.5"),
        (MANAGED, {"min_count": 2}, r"min_count=\) is for ids.LFU"),
        (ids.ManagedCollision(9, "lfu"), {"max_age": 2}, "is for ids.LRU and ids.TTL"),
    ],
)
def test_bad_restrictions(spec, limits, message):
    with pytest.raises(ValueError, match=f"table 'item': .*{message}"):
        build(spec).restrict(**limits)


def test_decayed_counts_can_be_restricted():
    map = build(ids.ManagedCollision(64, ids.LFU(half_life=2)))
    map.assign(longs([1] * 8 + [2] * 3), training=True)
    for _ in range(2):  # one half-life later, 1 counts 4 and 2 counts 1.5
        map.assign(longs([3]), training=True)
    map.release()
    assert sorted(map.restrict(min_count=3).ids) == [2, 3]
    assert map.find(longs([1, 2, 3])).numpy().tolist()[1:] == [-1, -1]


def test_epochs():
    with pytest.raises(ValueError, match="knows no epochs"):
        build(MANAGED).set_epoch(1)
    map = build(ids.ManagedCollision(9, "epoch_lfu"))
    for epoch in (-1, 4096):
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"epoch {epoch} is outside"):
            map.set_epoch(epoch)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ids.ManagedCollision(0), "ids.ManagedCollision: capacity=0"),
        (lambda: ids.ManagedCollision(2**30 + 1), "capacity=1073741825"),
        (lambda: ids.ManagedCollision(10.5), "capacity=10.5"),
        (lambda: ids.ManagedCollision(True), "capacity=True"),
        (lambda: ids.ManagedCollision(9, "fifo"), "ids.ManagedCollision: policy: policy='fifo'"),
        (lambda: ids.ManagedCollision(9, admit_after=0), "admit_after=0"),
        (lambda: ids.ManagedCollision(9, admit_after=256), "admit_after=256"),
        (lambda: ids.ManagedCollision(9, admit_probability=0), "admit_probability=0"),
        (lambda: ids.ManagedCollision(9, admit_probability=1.1), "admit_probability=1.1"),
        (lambda: ids.ManagedCollision(9, admit_probability=float("nan")), "admit_probability=nan"),
        (lambda: ids.ManagedCollision(9, admit_after=2, admit_probability=0.5), "one of them"),
        (lambda: ids.ManagedCollision(9, oov_rows=-1), "oov_rows=-1"),
        (lambda: ids.ManagedCollision(9, open_routes=32768), "open_routes=32768"),
        (lambda: ids.Dynamic(0, 9), "ids.Dynamic: initial=0"),
        (lambda: ids.Dynamic(10, 9), r"initial=10; it must be an integer in \[1, 9\]"),
        (lambda: ids.Dynamic(1, 2**29 + 1), "max_rows=536870913"),
        (lambda: ids.Dynamic(1, 9, when_full="no"), "ids.Dynamic: when_full: policy='no'"),
        (lambda: ids.Dynamic(1, 9, when_full="lru", policy="lfu"), "Leave policy= out"),
    ],
)
def test_bad_specs(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "spec",
    [
        ids.ManagedCollision(10**6, ids.TTL(5), admit_probability=0.5, oov_rows=7),
        ids.Dynamic(5, 10, when_full="lfu"),
        ids.Dynamic(5, 10, policy=ids.LFU(half_life=4)),
    ],
)
def test_specs_are_plain_data(spec):
    table = config.TableConfig("item", None, 4, ids=spec)
    assert config.TableConfig.from_dict(table.to_dict()) == table
    assert table.rows == spec.rows == build(spec).rows


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.assign(tf.constant([1.5]), training=True), TypeError, "ids have dtype float"),
        (lambda m: m.assign(tf.constant(["a"])), TypeError, "ids have dtype string"),
        (lambda m: m.find(tf.constant([True])), TypeError, "table 'item': ids have dtype bool"),
        (lambda m: m.erase(tf.constant([1], tf.uint64)), TypeError, "uint64.*tf.bitcast"),
        (lambda m: m.assign(tf.constant([[1]]), training=True), ValueError, "they are a vector"),
        (lambda m: m.assign(tf.constant(1), training=True), ValueError, "they are a vector"),
        (
            lambda m: m.assign(longs([1]), tf.constant([1.9]), longs([1]), training=True),
            TypeError,
            "counts have dtype float32",
        ),
        (
            lambda m: m.assign(longs([1]), scores=tf.constant([0.5]), training=True),
            TypeError,
            "scores have dtype float32",
        ),
        (lambda m: m.upsert(longs([1]), tf.constant([0.5])), TypeError, "scores have dtype float"),
        (
            lambda m: build(ids.ManagedCollision(32, "epoch_lru")).set_epoch(1.7),
            TypeError,
            "epochs have dtype float32",
        ),
    ],
)
def test_what_is_no_integer_is_refused_and_not_rounded(call, error, message):
    map = build(ids.ManagedCollision(32, "custom"))
    with pytest.raises(error, match=message):
        call(map)
    assert int(map.used()) == 0 and int(map.statistics()["steps"]) == 0


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint32])
def test_integers_of_every_kind_are_ids(dtype):
    map = build(MANAGED)
    rows, _ = map.assign(tf.constant(np.array([1, 2], dtype)), training=True)
    np.testing.assert_array_equal(map.find(np.array([1, 2], dtype)), rows)
    assert map.assign([], training=True)[0].shape == (0,)
