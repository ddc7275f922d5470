"""Policies as plain data."""

from __future__ import annotations

import pytest

from merlin_embeddings import config, ids
from merlin_embeddings.ids import policies


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("lru", ids.LRU()),
        ("lfu", ids.LFU()),
        ("epoch_lru", ids.EpochLRU()),
        ("epoch_lfu", ids.EpochLFU()),
        ("custom", ids.Custom()),
    ],
)
def test_names(name, policy):
    assert policies.get(name) == policy == policies.get(policy)


@pytest.mark.parametrize("policy", [ids.LRU(), ids.LFU(5), ids.TTL(3), ids.EpochLFU()])
def test_plain_data_and_back(policy):
    assert config.from_plain(config.to_plain(policy)) == policy


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: policies.get("fifo"), "policy='fifo'; it must be 'lru', 'lfu'"),
        (lambda: policies.get("ttl"), r"give ids.TTL\(steps\)"),
        (lambda: policies.get(3), "policy=3"),
        (lambda: policies.get(ids.LRU), "policy=<class"),
        (lambda: ids.TTL(0), "ids.TTL: steps=0"),
        (lambda: ids.TTL(2**31), "below 2"),
        (lambda: ids.TTL(1.5), "ids.TTL: steps=1.5"),
        (lambda: ids.LFU(half_life=0), "ids.LFU: half_life=0"),
        (lambda: ids.LFU(half_life=-1), "ids.LFU: half_life=-1"),
        (lambda: ids.LFU(half_life=True), "ids.LFU: half_life=True"),
    ],
)
def test_bad_policies(make, message):
    with pytest.raises(ValueError, match=message):
        make()
