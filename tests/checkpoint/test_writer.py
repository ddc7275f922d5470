"""What is written is what is read, whoever writes and reads."""

import itertools

import numpy as np
import pytest

from merlin_embeddings import checkpoint
from merlin_embeddings.checkpoint import Checkpoint, SlotInfo, TableInfo, Writer
from merlin_embeddings.tables import Entries

SLOTS = {"accumulator": SlotInfo((), "float32", 0.1), "momentum": SlotInfo((6,), "float32", 0.0)}
INFO = TableInfo("user/item é", 1000, 6, "float32", slots=SLOTS)


def table_of(rows=1000, dim=6, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "vectors": rng.normal(size=(rows, dim)).astype("float32"),
        "accumulator": rng.random(rows).astype("float32"),
        "momentum": rng.normal(size=(rows, dim)).astype("float32"),
    }


def entries_of(arrays, keys, chunk=64):
    for at in range(0, len(keys), chunk):
        some = np.asarray(keys[at : at + chunk])
        slots = {name: arrays[name][some] for name in ("accumulator", "momentum")}
        yield Entries(some, arrays["vectors"][some], slots)


def read(found):
    """Entries as {key: (vector, slots)}, each key once."""
    rows = {}
    for some in found:
        for at, key in enumerate(some.keys.tolist()):
            assert key not in rows
            rows[key] = (some.vectors[at], {name: s[at] for name, s in some.slots.items()})
    return rows


def require_rows(rows, arrays, keys):
    assert sorted(rows) == sorted(keys)
    for key, (vector, slots) in rows.items():
        np.testing.assert_array_equal(vector, arrays["vectors"][key])
        for name, value in slots.items():
            np.testing.assert_array_equal(value, arrays[name][key])


def save(path, arrays, parts=3, info=INFO, **options):
    edges = np.linspace(0, info.rows, parts + 1).astype(int)
    for part, (start, stop) in enumerate(itertools.pairwise(edges)):
        with Writer(path, part, parts) as writer:
            keys = range(start, stop)
            writer.table(info, entries_of(arrays, keys), stop - start, keys=keys)
    checkpoint.commit(path, parts, **options)


@pytest.mark.parametrize("keys", [None, range(300, 701), [5, 999, 0, 334, 335]])
@pytest.mark.parametrize("chunk", [1, 50, 65536])
def test_any_rows(tmp_path, keys, chunk):
    arrays = table_of()
    save(tmp_path / "a", arrays)
    found = Checkpoint(tmp_path / "a").entries("user/item é", keys=keys, chunk=chunk)
    require_rows(read(found), arrays, range(1000) if keys is None else keys)


def test_groups_and_metadata(tmp_path):
    arrays = {"kernel": np.eye(3, dtype="float32"), "step": np.int64(3), "none": np.zeros((0, 2))}
    with Writer(tmp_path / "a") as writer:
        writer.arrays("dense", arrays)
    checkpoint.commit(tmp_path / "a", step=9, metadata={"loss": [0.5, None]})
    found = Checkpoint(tmp_path / "a")
    assert (found.step, dict(found.metadata)) == (9, {"loss": [0.5, None]})
    assert set(found.arrays("dense")) == set(arrays)
    for name, values in arrays.items():
        np.testing.assert_array_equal(found.arrays("dense")[name], values)
        assert found.arrays("dense")[name].dtype == values.dtype
