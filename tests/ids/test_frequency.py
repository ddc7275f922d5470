"""Which ids have rows of their own, by FrequencyCap and FrequencyHash."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import merlin_embeddings as me
from merlin_embeddings.ids import FrequencyCap, FrequencyHash

COUNTS = st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.integers(0, 20), min_size=1)


def by_frequency(counts):
    return sorted(counts, key=lambda id: (-counts[id], id))


@given(COUNTS, st.none() | st.integers(1, 20), st.none() | st.integers(1, 10))
def test_cap(counts, min_count, top):
    if min_count is None and top is None:
        top = 1
    kept = [id for id in by_frequency(counts) if min_count is None or counts[id] >= min_count]
    kept = kept[:top]

    def make():
        ids, numbers = list(counts), list(counts.values())
        return FrequencyCap(ids, numbers, min_count=min_count, top=top, oov_rows=3)

    if not kept:
        with pytest.raises(ValueError, match=r"none of \d+ ids meets min_count="):
            make()
        return
    assert make().ids.keys.tolist() == kept
    assert make().rows_of(None) == len(kept) + 3
    assert make() == FrequencyCap(counts, min_count=min_count, top=top, oov_rows=3)


@given(COUNTS, st.integers(1, 100))
def test_share_of_traffic(counts, percent):
    order, total, kept = by_frequency(counts), sum(counts.values()), []
    for id in order:  # the fewest that have the share
        kept.append(id)
        if sum(counts[k] for k in kept) * 100 >= percent * total:
            break
    spec = FrequencyHash(counts, hashed_rows=2, share=percent / 100)
    # A share that is met exactly may round either way.
    exact = sum(counts[k] for k in kept) * 100 == percent * total
    found = spec.ids.keys.tolist()
    assert found == kept or (exact and found == order[: len(kept) + 1])


def test_several_conditions_must_all_be_met():
    counts = {1: 50, 2: 30, 3: 15, 4: 5}
    spec = FrequencyHash(counts, hashed_rows=1, min_count=10, top=3, share=0.8)
    assert spec.ids.keys.tolist() == [1, 2]
    assert FrequencyHash(counts, hashed_rows=1, top=1, share=0.8).ids.keys.tolist() == [1]


def test_strings():
    spec = FrequencyCap(["b", "a", "c"], np.array([3, 3, 9]), top=2)
    assert spec.ids.keys.tolist() == me.bags.hash_strings(["c", "a"]).numpy().tolist()
    assert repr(spec) == "FrequencyCap(ids=KnownIds(2 strings), top=2)"


def test_plain_data_hold_no_ids():
    spec = FrequencyHash({7: 9, 5: 3, 2: 1}, hashed_rows=4, top=2, salt=3)
    plain = me.config.to_plain(spec)
    assert plain["ids"]["object"].keys() == {"size", "strings", "digest"}
    again = me.config.from_plain(plain)
    assert again == spec
    assert again.ids.keys is None
    assert again.rows_of(None) == 6
    other = FrequencyHash({7: 9, 4: 3, 2: 1}, hashed_rows=4, top=2, salt=3)
    assert other != spec


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: FrequencyCap({1: 2}), ValueError, r"say which .* by min_count or top"),
        (lambda: FrequencyHash({1: 2}, hashed_rows=1), ValueError, r"min_count or top or share"),
        (lambda: FrequencyHash({1: 2}, top=1), ValueError, r"hashed_rows=0; it must be a positive"),
        (lambda: FrequencyCap([1, 2], top=1), ValueError, r"FrequencyCap: counts are missing"),
        (lambda: FrequencyCap([1, 2], [1], top=1), ValueError, r"counts have shape \[1\] for 2"),
        (lambda: FrequencyCap([1, 2], [1, -3], top=1), ValueError, r"counts\[1\]=-3; a count is"),
        (lambda: FrequencyCap([1, 2], [1, 0.5], top=1), TypeError, r"counts have dtype float64"),
        (lambda: FrequencyCap([1, 1], [1, 2], top=1), ValueError, r"id 1 comes twice"),
        (lambda: FrequencyCap({1: 2}, top=0), ValueError, r"top=0; it must be a positive"),
        (lambda: FrequencyCap({1: 2}, min_count=2.0), ValueError, r"min_count=2.0; it must be"),
        (lambda: FrequencyCap({1: 2}, top=1, oov_rows=-1), ValueError, r"oov_rows=-1"),
        (lambda: FrequencyCap({}, top=1), ValueError, r"none of 0 ids meets top=1"),
        (
            lambda: FrequencyHash({1: 2}, hashed_rows=1, share=1.5),
            ValueError,
            r"share=1.5; it must be a number in \(0, 1\]",
        ),
        (lambda: FrequencyCap({1.5: 2}, top=1), TypeError, r"ids have dtype float64"),
    ],
)
def test_mistakes(make, error, message):
    with pytest.raises(error, match=message):
        make()
