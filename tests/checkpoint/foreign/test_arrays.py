"""NumPy's files."""

import numpy as np
import pytest

from merlin_embeddings.checkpoint import foreign
from tests.checkpoint.foreign import tables

VECTORS = np.arange(20, dtype="float32").reshape(5, 4)


def test_a_file_is_a_table(tmp_path):
    np.save(tmp_path / "items.npy", VECTORS)
    (found,) = foreign.read(tmp_path / "items.npy")
    assert (found.name, found.info.key, foreign.recognise(tmp_path)) == ("items", "row", "numpy")
    assert tables.rows_of(found)[3] == ([12, 13, 14, 15], {}, None)


def test_savez_by_column_or_by_table(tmp_path):
    keys = np.array([4, -2, 9, 0, 1], "int32")
    slot = {"slot.linear": VECTORS + 1, "slot.accumulator": VECTORS[:, 0]}
    np.savez(tmp_path / "t.npz", keys=keys, vectors=VECTORS, scores=np.arange(5), **slot)
    (found,) = foreign.read(tmp_path / "t.npz")
    expected = {
        int(key): (row.tolist(), {"linear": (row + 1).tolist(), "accumulator": row[0]}, at)
        for at, (key, row) in enumerate(zip(keys, VECTORS, strict=True))
    }
    assert tables.rows_of(found, 2) == expected
    assert tables.keys_of(found) == [-2, 0, 1, 4, 9]
    np.savez(tmp_path / "both.npz", a=VECTORS, b=VECTORS * 2)
    assert [one.name for one in foreign.read(tmp_path / "both.npz")] == ["a", "b"]


def test_numpy_loads_what_is_written(tmp_path):
    made = tables.source("t", range(5), VECTORS.astype("float16"), key="row", chunk=2)
    foreign.write(tmp_path / "t.npy", [made], "numpy")
    read = np.load(tmp_path / "t.npy", mmap_mode="r")
    np.testing.assert_array_equal(read, VECTORS)
    assert read.dtype == np.float16
    slots = {"a": VECTORS * 3, "b": VECTORS[:, 1]}
    made = tables.source("u/v", [5, 3, 1, 2, 0], VECTORS, slots, np.arange(5), chunk=2)
    foreign.write(tmp_path / "out", [made], "numpy")
    folder = tmp_path / "out" / "u%2Fv"
    expected = {"keys": [5, 3, 1, 2, 0], "vectors": VECTORS, "scores": np.arange(5)}
    for name, values in {**expected, "slot.a": slots["a"], "slot.b": slots["b"]}.items():
        np.testing.assert_array_equal(np.load(folder / f"{name}.npy"), values)


@pytest.mark.parametrize(
    "value, match",
    [
        (np.array([[1, "a"]], object), "object"),
        (np.arange(6).reshape(2, 3), "int64; vectors are one of"),
        (np.zeros((3, 4, 5), "f4"), r"\[3, 4, 5\], a table is \[N, D\]"),
        (np.zeros((0, 4), "f4"), "no rows"),
        (np.zeros((3, 4), "f4").T, "ascontiguousarray"),
        (np.float32(3), "no column"),
    ],
)
def test_what_is_no_table(tmp_path, value, match):
    np.save(tmp_path / "t.npy", value, allow_pickle=True)
    with pytest.raises(ValueError, match=rf"t\.npy.*{match}"):
        foreign.read(tmp_path / "t.npy")


def test_ids_cannot_be_rows(tmp_path):
    made = tables.source("t", [5, 7], VECTORS[:2])
    with pytest.raises(ValueError, match="has ids as keys"):
        foreign.write(tmp_path / "t.npy", [made], "numpy")
    assert not list(tmp_path.iterdir())
    np.savez_compressed(tmp_path / "t.npz", a=VECTORS)
    with pytest.raises(ValueError, match="compressed"):
        foreign.read(tmp_path / "t.npz")
