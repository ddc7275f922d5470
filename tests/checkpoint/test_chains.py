"""Increments on increments are what a dict says after the same writes."""

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_embeddings import checkpoint
from merlin_embeddings.checkpoint import BrokenCheckpoint, Checkpoint
from merlin_embeddings.checkpoint.writer import Writer
from tests.checkpoint import made
from tests.checkpoint.conftest import FAST

ROWS = 60


def applied(rows, path, info):
    """What {key: row} becomes by the changes of a checkpoint."""
    rows = dict(rows)
    for table, entries in checkpoint.changes(path, chunk=7):
        assert table == info.name
        for key in entries.erased.tolist():
            del rows[key]
        bare = dataclasses.replace(entries, erased=np.empty(0, np.int64))
        rows |= made.rows_of([bare], info)
    return rows


@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.lists(st.sampled_from(["full", "some"]), max_size=4),
    kind=st.sampled_from(["row", "id", "virtual"]),
    shards=st.integers(1, 9),
)
def test_chain(seed, steps, kind, shards):
    rng = np.random.default_rng(seed)
    info = {
        "row": made.row_info(ROWS),
        "id": made.id_info(),
        "virtual": made.id_info(virtual_shards=8),
    }[kind]
    rows, base = {}, None
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        for number, step in enumerate(["full", *steps]):
            before, path = dict(rows), Path(folder) / f"step-{number}"
            if kind == "row":
                keys = range(ROWS) if step == "full" else rng.integers(0, ROWS, 9).tolist()
                written = {key: (*made.row_of(rng)[:7], 0) for key in keys}
                gone = []
                rows |= written
            else:
                gone = [key for key in rows if rng.random() < 0.2]
                for key in gone:
                    del rows[key]
                drawn = {int(key) for key in rng.integers(-40, 40, 30)} - set(gone)
                written = {key: made.row_of(rng) for key in drawn}
                rows |= written
            here = dataclasses.replace(info, full=step == "full")
            if step == "full":
                written, gone = rows, []
            if kind == "row" and step == "full":
                made.write_rows(path, rows, here, base=base)
            else:
                made.write_ids(path, written, here, erased=gone, base=base)
            found = Checkpoint(path)
            assert made.rows_of(found.entries(info.name, chunk=11), info) == rows
            assert applied(before, path, info) == rows
            base = path
        some = rng.permutation(list(rows))[:20]
        assert made.rows_of(found.entries(info.name, keys=some), info) == {
            key: rows[key] for key in some.tolist()
        }
        checkpoint.compact(path, f"{folder}/compact")
        checkpoint.reshard(path, f"{folder}/out", shards)
        for out in ("compact", "out"):
            alone = Checkpoint(f"{folder}/{out}")
            assert alone.base is None and not alone.is_increment(info.name)
            assert made.rows_of(alone.entries(info.name), info) == rows
            assert not checkpoint.verify(f"{folder}/{out}").problems
            assert not checkpoint.diff(path, f"{folder}/{out}")
        assert len(alone.shards(info.name)) <= shards


def test_virtual_shards_are_read_apart(tmp_path):
    rng, info = np.random.default_rng(0), made.id_info(virtual_shards=8)
    rows = {key: made.row_of(rng) for key in range(-100, 100)}
    states = [{"pins": np.arange(n), "clock": np.int64(n)} for n in range(8)]
    made.write_ids(tmp_path / "a", rows, info, parts=3, states=states)
    checkpoint.reshard(tmp_path / "a", tmp_path / "b", 5)
    for path in ("a", "b"):
        found = Checkpoint(tmp_path / path)
        for span in [(0, 8), (2, 3), (3, 7), (4, 4)]:
            mine = {k: row for k, row in rows.items() if made.shard_of(k, 8) in range(*span)}
            assert made.rows_of(found.entries("ids", virtual_shards=span), info) == mine
            state = found.state("ids", virtual_shards=span)
            assert [one.virtual_shards for one in state] == [(n, n + 1) for n in range(*span)]
            for one in state:
                np.testing.assert_array_equal(one.arrays["pins"], np.arange(one.virtual_shards[0]))
                assert one.arrays["clock"] == one.virtual_shards[0]


def test_state_of_a_file_cannot_be_cut(tmp_path):
    info = made.id_info(virtual_shards=4)
    with Writer(tmp_path / "a") as writer:
        state = {"pins": np.arange(3)}
        writer.table(info, [], [0] * 4, virtual_shards=(0, 4), state=state)
    checkpoint.commit(tmp_path / "a")
    checkpoint.reshard(tmp_path / "a", tmp_path / "same", 1)
    np.testing.assert_array_equal(
        Checkpoint(tmp_path / "same").state("ids")[0].arrays["pins"], [0, 1, 2]
    )
    with pytest.raises(ValueError, match=r"table 'ids': what its id map keeps .* can't be cut"):
        checkpoint.reshard(tmp_path / "a", tmp_path / "b", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "same"]


def test_tables_and_groups_of_the_base(tmp_path):
    rng = np.random.default_rng(0)
    rows = {key: made.row_of(rng) for key in range(100)}
    with Writer(tmp_path / "a") as writer:
        info = made.row_info()
        writer.table(info, made.entries_of(info, rows), 100, keys=range(100))
        writer.arrays("dense", {"kernel": np.ones(3)})
        writer.arrays("clock", {"step": np.int64(1)})
    checkpoint.commit(tmp_path / "a", step=1)
    with Writer(tmp_path / "b") as writer:
        writer.arrays("clock", {"step": np.int64(2)})
    checkpoint.commit(tmp_path / "b", step=2, base=tmp_path / "a")
    found = Checkpoint(tmp_path / "b")
    assert made.rows_of(found.entries(info.name), info) == made.without_scores(rows)
    assert found.arrays("clock")["step"] == 2 and found.arrays("dense")["kernel"].sum() == 3
    assert [one.path.name for one in found.chain] == ["b", "a"]
    assert list(checkpoint.changes(tmp_path / "b")) == []
    # Both are moved: the way from one to the other stays.
    (tmp_path / "there").mkdir()
    for name in ("a", "b"):
        (tmp_path / name).rename(tmp_path / "there" / name)
    assert Checkpoint(tmp_path / "there" / "b").base is not None


@pytest.mark.parametrize("change", ["gone", "another"])
def test_base_that_is_not_there(tmp_path, change):
    info = made.id_info()
    made.write_ids(tmp_path / "a", {}, info)
    made.write_ids(tmp_path / "b", {}, dataclasses.replace(info, full=False), base=tmp_path / "a")
    if change == "gone":
        (tmp_path / "a").rename(tmp_path / "c")
        with pytest.raises(FileNotFoundError, match=r"goes on from .*/a: there is no checkpoint"):
            Checkpoint(tmp_path / "b")
    else:
        made.write_ids(tmp_path / "a", {}, info, overwrite=True)
        with pytest.raises(BrokenCheckpoint, match="/b goes on from a checkpoint that was at"):
            Checkpoint(tmp_path / "b")


def test_base_that_does_not_fit(tmp_path):
    info = made.id_info()
    some = dataclasses.replace(info, full=False)
    made.write_ids(tmp_path / "a", {}, info)
    with pytest.raises(ValueError, match="table 'ids' has what changed, and there is no base"):
        made.write_ids(tmp_path / "b", {}, some)
    wider = dataclasses.replace(some, dim=5)
    with pytest.raises(ValueError, match="'ids' has dim 3 there, and 5 now; save without a base"):
        made.write_ids(tmp_path / "b", {}, wider, base=tmp_path / "a")
    with pytest.raises(ValueError, match="can't go on from itself"):
        made.write_ids(tmp_path / "a", {}, some, base=tmp_path / "a", overwrite=True)
    with pytest.raises(FileNotFoundError, match=r"there is no checkpoint at .*/none"):
        made.write_ids(tmp_path / "b", {}, some, base=tmp_path / "none")
