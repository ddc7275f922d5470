"""What is written is what the page says: a reader that was written from it reads it."""

import dataclasses
import os

import numpy as np
import pytest
import tensorflow as tf

from merlin_embeddings import checkpoint
from merlin_embeddings.checkpoint import Checkpoint, SlotInfo, TableInfo, Writer
from merlin_embeddings.tables import Entries
from tests.checkpoint import made
from tests.checkpoint.numpy_reader import read_group, read_table


def test_chain(tmp_path):
    rng, info = np.random.default_rng(0), made.id_info(virtual_shards=4)
    rows = {key: made.row_of(rng) for key in range(-50, 50)}
    made.write_ids(tmp_path / "a", rows, info)
    some = dataclasses.replace(info, full=False)
    changed = {key: made.row_of(rng) for key in (3, 100)}
    made.write_ids(tmp_path / "b", changed, some, erased=[-50, 7], base=tmp_path / "a")
    del rows[-50], rows[7]
    rows |= changed
    found = read_table(tmp_path / "b", "ids")
    assert {
        key: (*r["vectors"], r["slot.accumulator"], *r["slot.momentum"], r["scores"])
        for key, r in found.items()
    } == rows


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_dtypes_ranges_and_groups(tmp_path, dtype):
    rng = np.random.default_rng(0)
    # Wide enough for several blocks, and none of them whole.
    vectors = rng.normal(size=(1000, 700)).astype(tf.as_dtype(dtype).as_numpy_dtype)
    slots = {"m": SlotInfo((2, 3), dtype, 0.0), "none": SlotInfo((0,), "float32", 0.0)}
    info = TableInfo("a/b", 1000, 700, dtype, slots=slots)
    m = rng.normal(size=(1000, 2, 3)).astype(vectors.dtype)
    none = np.zeros((1000, 0), "float32")
    with Writer(tmp_path / "a") as writer:
        for start, stop in [(400, 1000), (0, 400), (400, 400)]:
            some = [
                Entries(k, vectors[k], {"m": m[k], "none": none[k]})
                for k in np.array_split(np.arange(start, stop), 7)
            ]
            writer.table(info, some, stop - start, keys=range(start, stop))
        writer.arrays("dense", {"w": np.eye(3), "n": np.int64(5), "flags": np.array([True])})
    checkpoint.commit(tmp_path / "a")
    found = read_table(tmp_path / "a", "a/b")
    for column, values in {"vectors": vectors, "slot.m": m}.items():
        there = np.array([found[key][column] for key in range(1000)])
        np.testing.assert_array_equal(there, values.astype(there.dtype))
    dense = read_group(tmp_path / "a", "dense")
    np.testing.assert_array_equal(dense["w"], np.eye(3))
    assert (dense["n"], dense["flags"].tolist()) == (5, [True])
    # Here, any chunk and any rows.
    for chunk in (37, 374, 65536):
        at = Checkpoint(tmp_path / "a").entries("a/b", keys=range(3, 998), chunk=chunk)
        read = list(at)
        assert max(len(entries) for entries in read) <= chunk
        np.testing.assert_array_equal(np.concatenate([e.keys for e in read]), np.arange(3, 998))
        np.testing.assert_array_equal(np.concatenate([e.vectors for e in read]), vectors[3:998])
        np.testing.assert_array_equal(np.concatenate([e.slots["m"] for e in read]), m[3:998])


def test_only_what_is_needed_is_read(tmp_path, monkeypatch):
    info = TableInfo("t", 100_000, 64)
    vectors = np.arange(6_400_000, dtype="float32").reshape(-1, 64)
    entries = [Entries(np.arange(100_000), vectors)]
    with Writer(tmp_path / "a") as writer:
        writer.table(info, entries, 100_000, keys=range(100_000))
    checkpoint.commit(tmp_path / "a")
    read, preadv = [], os.preadv

    def counting(descriptor, buffers, offset):
        read.append(preadv(descriptor, buffers, offset))
        return read[-1]

    monkeypatch.setattr(os, "preadv", counting)
    [found] = Checkpoint(tmp_path / "a").entries("t", keys=range(50_000, 50_010))
    np.testing.assert_array_equal(found.vectors, vectors[50_000:50_010])
    # One block, of 25 MB.
    assert sum(read) < 1.1 * 2**20
    found = Checkpoint(tmp_path / "a").entries("t", keys=[5, 99_999])
    np.testing.assert_array_equal(np.concatenate([f.vectors for f in found]), vectors[[5, 99_999]])
    assert sum(read) < 3.2 * 2**20
