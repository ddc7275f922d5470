"""Stateful maps do what an oracle of dicts does, step by step, whatever comes."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_embeddings import ids
from tests.ids.maps import agree, build, changes_of, longs, oracle_of, train

EXTREME = [0, -1, 1, 2**63 - 1, -(2**63), 2**32, -(2**31)]
IDS = EXTREME + [7919 * i * i - 50 for i in range(73)]
POLICIES = {
    "lru": ids.LRU(),
    "lfu": ids.LFU(),
    "decayed_lfu": ids.LFU(half_life=3),
    "epoch_lru": ids.EpochLRU(),
    "epoch_lfu": ids.EpochLFU(),
    "ttl": ids.TTL(3),
    "custom": ids.Custom(),
}

an_id = st.sampled_from(IDS)
scores = st.one_of(st.integers(0, 5), st.integers(0, 2**32 - 1))
# Drawn here: a list of tuples takes hypothesis longer than the maps take for it.
lookups = st.builds(
    lambda seed, size: batch_of(np.random.default_rng(seed), size),
    st.integers(0, 2**32),
    st.integers(0, 40),
)


def batch_of(random, size):
    """[(id, count, score)]"""
    large = [255, 2**20, 2**32, 2**40]
    few, many = random.integers(1, 5, size).tolist(), random.choice(large, size).tolist()
    low, any_score = random.integers(0, 6, size).tolist(), random.integers(0, 2**32, size).tolist()
    rare = random.random((2, size)) < 0.1
    return [
        (
            IDS[min(int(random.zipf(1.1)) - 1, 2**20) % len(IDS)],
            many[i] if rare[0, i] else few[i],
            any_score[i] if rare[1, i] else low[i],
        )
        for i in range(size)
    ]


operations = st.one_of(
    st.tuples(
        st.just("train"),
        st.lists(lookups, min_size=1, max_size=3),
        st.sampled_from([None, 0, IDS[20]]),
        st.booleans(),
    ),
    st.tuples(
        st.just("train"), st.lists(lookups, min_size=1, max_size=1), st.none(), st.just(True)
    ),
    st.tuples(st.just("release")),
    st.tuples(st.just("find"), st.lists(an_id)),
    st.tuples(st.just("upsert"), st.lists(st.tuples(an_id, scores), unique_by=lambda x: x[0])),
    st.tuples(st.just("upsert_unscored"), st.lists(an_id, unique=True)),
    st.tuples(st.just("erase"), st.lists(an_id)),
    st.tuples(st.just("restrict"), st.sampled_from(["size", "limit"]), st.integers(0, 30)),
    st.tuples(st.just("epoch"), st.integers(0, 4095)),
    st.tuples(st.just("resume")),
)


class Pair:
    """A map and its oracle, which go the same way."""

    def __init__(self, spec):
        self.spec, self.map = spec, build(spec)
        self.oracle = oracle_of(spec, self.map)

    def train(self, features, padding, counted):
        scored = self.map.policy == ids.Custom()
        train(self.map, self.oracle, features, padding, counted, scored)

    def release(self):
        self.map.release()
        self.oracle.release()

    def find(self, wanted):
        assert self.map.find(longs(wanted)).numpy().tolist() == [
            self.oracle.find(id) for id in wanted
        ]
        rows, changes = self.map.assign(longs(wanted))
        assert changes is None
        assert rows.numpy().tolist() == [self.oracle.row(id) for id in wanted]

    def upsert(self, scored):
        self.put([id for id, _ in scored], [score for _, score in scored])

    def upsert_unscored(self, wanted):
        self.put(wanted, None)

    def put(self, wanted, scores):
        try:
            expected = self.oracle.upsert(wanted, scores or [None] * len(wanted))
        except OverflowError:
            with pytest.raises(tf.errors.ResourceExhaustedError, match="new ids, and"):
                self.map.upsert(longs(wanted), None if scores is None else longs(scores))
            return
        rows, changes = self.map.upsert(longs(wanted), None if scores is None else longs(scores))
        assert rows.numpy().tolist() == [self.oracle.find(id) for id in wanted]
        assert changes_of(changes) == expected

    def erase(self, wanted):
        assert self.map.erase(longs(wanted)).numpy().tolist() == self.oracle.erase(wanted)

    def restrict(self, what, number):
        if what == "size":
            gone, expected = self.map.restrict(size=number), self.oracle.restrict(0, number)
        elif self.map.policy.by_age:
            lowest = max(0, self.oracle.clock - number)
            gone = self.map.restrict(max_age=number)
            expected = self.oracle.restrict(lowest, self.oracle.rows)
        elif self.map.policy == ids.LFU():
            gone = self.map.restrict(min_count=number)
            expected = self.oracle.restrict(number, self.oracle.rows)
        else:
            gone = self.map.restrict(min_score=number * 4096)
            expected = self.oracle.restrict(number * 4096, self.oracle.rows)
        columns = (part.tolist() for part in gone)
        assert list(zip(*columns, strict=True)) == expected

    def epoch(self, epoch):
        if self.map.policy.kind.startswith("epoch"):
            self.map.set_epoch(epoch)
            self.oracle.epoch, self.oracle.epoch_began = epoch, self.oracle.clock

    def resume(self):
        state, again = self.map.state(), build(self.spec)
        again.restore(state)
        for name, values in again.state().items():
            np.testing.assert_array_equal(values, state[name], err_msg=name)
        self.map = again

    def run(self, operations):
        for name, *arguments in operations:
            getattr(self, name)(*arguments)
            agree(self.map, self.oracle)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=15)
@given(operations=st.lists(operations, max_size=12), more=st.data())
def test_managed_collision_is_its_oracle(policy, operations, more):
    admission = more.draw(
        st.sampled_from(
            [
                {},
                {"admit_after": 3},
                {"admit_after": 2},
                {"admit_probability": 0.5},
                {"admit_probability": 1},
            ]
        )
    )
    spec = ids.ManagedCollision(
        more.draw(st.sampled_from([1, 33])),
        POLICIES[policy],
        oov_rows=more.draw(st.sampled_from([0, 5])),
        open_routes=more.draw(st.sampled_from([0, 2, 16])),
        **admission,
    )
    Pair(spec).run(operations)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=10)
@given(operations=st.lists(operations, max_size=12), more=st.data())
def test_dynamic_is_its_oracle(policy, operations, more):
    initial, rows = more.draw(st.sampled_from([(1, 1), (1, 40), (30, 60), (5, 100)]))
    evict = more.draw(st.booleans())
    full = {"when_full": POLICIES[policy]} if evict else {"policy": POLICIES[policy]}
    open_routes = more.draw(st.sampled_from([0, 16]))
    Pair(ids.Dynamic(initial, rows, open_routes=open_routes, **full)).run(operations)


@pytest.mark.parametrize(
    "spec",
    [
        ids.ManagedCollision(900, "lfu", admit_after=2),
        ids.ManagedCollision(900, ids.LFU(half_life=5), oov_rows=10),
        ids.Dynamic(100, 900, when_full="lru"),
        ids.Dynamic(300, 1200),
    ],
    ids=str,
)
def test_drift(spec):
    pair, random = Pair(spec), np.random.default_rng(0)
    for step in range(4):
        batch = (random.integers(0, 900, 700) + 50 * step).tolist()
        pair.train([[(id, 1, 0) for id in batch]], None, counted=False)
        if step % 2:
            pair.release()
    assert pair.oracle.counts["inserted"] > 500


def test_large_batches_on_several_threads():
    pair, random = Pair(ids.ManagedCollision(40_000, "lru")), np.random.default_rng(1)
    assert pair.map._layout.sizes.shards > 1
    for step in range(2):
        batch = random.integers(0, 60_000, 70_000) + 20_000 * step
        pair.train([[(id, 1, 0) for id in batch.tolist()]], None, counted=False)
        pair.release()
    assert pair.oracle.counts["evicted"] > 1000
