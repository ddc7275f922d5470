"""States of stateful maps, cut along virtual shards: all parts together are the map."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_embeddings import ids, native
from tests.ids.maps import build, changes_of, longs
from tests.ids.oracle import hash_of

SPECS = {
    "managed": ids.ManagedCollision(40_000, "lfu", admit_after=2, oov_rows=3),
    "decayed": ids.ManagedCollision(70_000, ids.LFU(half_life=3)),
    "small": ids.ManagedCollision(100, "lru"),
    "dynamic": ids.Dynamic(100, 40_000, when_full="lfu"),
}


def batch(random):
    return longs(random.zipf(1.2, 3000) % 2**40 - 2**39)


@pytest.fixture(scope="module", params=SPECS)
def trained(request):
    """(spec, a map that has seen some steps, the last of them not released)"""
    map, random = build(SPECS[request.param]), np.random.default_rng(0)
    for step in range(4):
        map.assign(batch(random), training=True)
        if step == 1:
            map.release()
    return SPECS[request.param], map


def same(state, other):
    assert set(state) == set(other)
    for name, values in state.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


@settings(max_examples=8)
@given(writers=st.integers(1, 9), readers=st.integers(1, 9), seed=st.integers(0, 99))
def test_all_parts_are_the_map(trained, writers, readers, seed):
    """Written by N, read by M, and put together in any order."""
    spec, map = trained
    random = np.random.default_rng(seed)
    files = [{s: map.state(s) for s in shards} for shards in cut(map.shards, writers)]
    parts = []
    for shards in cut(map.shards, readers):
        parts += [file[s] for file in files for s in shards if s in file]
    random.shuffle(parts)

    other = build(spec)
    other.assign(batch(random), training=True)  # forgotten
    other.restore(parts)
    same(map.state(), other.state())


def cut(shards, processes):
    """Ranges of shards, some of which may be empty."""
    return [part.tolist() for part in np.array_split(np.arange(shards), processes)]


def test_the_run_goes_on(trained):
    spec, map = trained
    one, other = build(spec), build(spec)
    one.restore(map.state())
    other.restore([map.state(shard) for shard in range(map.shards)])
    random = np.random.default_rng(7)
    for _ in range(3):
        some = batch(random)
        (rows, changes), (its_rows, its_changes) = (
            each.assign(some, training=True) for each in (one, other)
        )
        np.testing.assert_array_equal(rows, its_rows)
        assert changes_of(changes) == changes_of(its_changes)
    same(one.state(), other.state())


def test_an_id_is_in_the_part_of_its_shard(trained):
    """Oracle: the shard is the first bits of the id's hash."""
    spec, map = trained
    bits, seen = map.shards.bit_length() - 1, 0
    for shard in range(map.shards):
        part = map.state(shard)
        seen += len(part["ids"])
        assert {hash_of(int(id)) >> (64 - bits) for id in part["ids"]} <= {shard}
        assert int(part["shard"]) == shard
        known = list(map.known(shard=shard))
        assert np.concatenate([k.ids for k in known] or [[]]).tolist() == part["ids"].tolist()
        if isinstance(spec, ids.ManagedCollision):
            width = map.capacity // map.shards
            assert set(part["rows"] // width) <= {shard}
    assert seen == int(map.used()) > 50
    assert (map.shards > 1) == (spec != SPECS["small"])


def one_step(part):
    step = np.zeros_like(part["meters"])
    step[native.METERS.index("clock")] = 1
    return step


def without(parts, shard):
    return [part for part in parts if part["shard"] != shard]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: without(p, 1), "states of 3 virtual shards of its ids, which has 4; shard 1 is"),
        (lambda p: [*p, p[2]], "two states of virtual shard 2"),
        (lambda p: [*p, {**p[2], "shard": np.asarray(9)}], "which has 4; 9 isn't one of them"),
        (lambda p: [{k: v for k, v in p[0].items() if k != "shard"}], "doesn't say of which"),
        (lambda p: [{**p[0], "ids": p[0]["ids"][:-1]}, *p[1:]], "'slots' of its ids' state"),
        (
            lambda p: [{**p[0], "meters": p[0]["meters"] + one_step(p[0])}, *p[1:]],
            "are of different steps: clock is 2, 3",
        ),
        (lambda p: [], "states of 0 virtual shards"),
    ],
)
def test_parts_that_do_not_fit_change_nothing(change, message):
    map, other = build(SPECS["managed"]), build(SPECS["managed"])
    random = np.random.default_rng(1)
    for each, steps in ((map, 2), (other, 1)):
        for _ in range(steps):
            each.assign(batch(random), training=True)
    before = other.state()
    parts = [map.state(shard) for shard in range(map.shards)]
    with pytest.raises(ValueError, match=f"table 'item': .*{message}"):
        other.restore(change(parts))
    same(before, other.state())


@pytest.mark.parametrize("shard", [-1, 4, 1.0, True])
def test_shards_out_of_range(shard):
    map = build(SPECS["managed"])
    with pytest.raises(ValueError, match=f"table 'item': virtual shard {shard!r}; it has 4"):
        map.state(shard)
    with pytest.raises(ValueError, match="virtual shard"):
        map.known(shard=shard)
