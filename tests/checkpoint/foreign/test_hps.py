"""Files of the Hierarchical Parameter Server."""

import struct

import numpy as np
import pytest

from merlin_embeddings.checkpoint import foreign
from tests.checkpoint.foreign import raw_files, tables

ROWS = [(7, [1.0, 2.5]), (-3, [0.0, -1.0]), (2**50, [4.0, 5.0])]


def test_folders(tmp_path):
    raw_files.hps_folder(tmp_path / "model" / "items", ROWS, meta=[30, 10, 20])
    raw_files.hps_folder(tmp_path / "model" / "users", ROWS[:1])
    items, users = foreign.read(tmp_path / "model")
    assert foreign.recognise(tmp_path / "model") == "hps"
    assert (items.name, items.info.key, items.info.scores) == ("items", "id", "int64")
    scores = dict(zip((key for key, _ in ROWS), (30, 10, 20), strict=True))
    expected = {key: (vector, {}, scores[key]) for key, vector in ROWS}
    assert tables.rows_of(items, chunk=2) == expected
    assert tables.keys_of(items) == [-3, 7, 2**50]
    assert (users.info.scores, tables.rows_of(users)) == (None, {7: ([1.0, 2.5], {}, None)})
    # One table by itself is called as its folder is.
    assert foreign.read(tmp_path / "model" / "items")[0].name == "items"


def test_folders_are_written(tmp_path):
    vectors = np.array([[1, 2], [3, 4], [5, 6]], "float16")
    made = tables.source("item_id", [9, 4, -1], vectors, scores=np.array([5, 6, 7]), chunk=2)
    assert foreign.write(tmp_path / "out", [made], "hps") == []
    folder = tmp_path / "out" / "item_id"
    assert folder.joinpath("key").read_bytes() == struct.pack("<3q", 9, 4, -1)
    assert folder.joinpath("emb_vector").read_bytes() == struct.pack("<6f", 1, 2, 3, 4, 5, 6)
    assert folder.joinpath("meta").read_bytes() == struct.pack("<3q", 5, 6, 7)


@pytest.mark.parametrize("code", "qI")
def test_dumps(tmp_path, code):
    rows = [(abs(key) % 2**32, vector) for key, vector in ROWS[:2]]
    raw_files.hps_dump(tmp_path / "items.bin", rows, code)
    (found,) = foreign.read(tmp_path / "items.bin")
    assert foreign.recognise(tmp_path / "items.bin") == "hps-bin"
    assert found.name == "items"
    assert tables.rows_of(found, 1) == {key: (vector, {}, None) for key, vector in rows}


def test_dumps_are_written(tmp_path):
    vectors = np.arange(15, dtype="float32").reshape(5, 3)
    made = [tables.source(name, [5, 1, 2, 8, -7], vectors, chunk=2) for name in "ab"]
    with pytest.raises(ValueError, match="holds one table, not 2"):
        foreign.write(tmp_path / "ab.bin", made, "hps-bin")
    foreign.write(tmp_path / "a.bin", made[:1], "hps-bin")
    foreign.write(tmp_path / "both", made, "hps-bin")
    expected = dict(zip([5, 1, 2, 8, -7], map(tuple, vectors.tolist()), strict=True))
    for file in ("a.bin", "both/a.bin", "both/b.bin"):
        assert raw_files.hps_rows((tmp_path / file).read_bytes()) == expected


def test_rounding_is_said(tmp_path):
    made = tables.source("t", [1], np.array([[0.1]], "float64"))
    with pytest.raises(ValueError, match="float64 is rounded to float32"):
        foreign.write(tmp_path / "t", [made], "hps")
    foreign.write(tmp_path / "t", [made], "hps", lossy=True)
    assert tables.rows_of(*foreign.read(tmp_path / "t"))[1][0] == [float(np.float32(0.1))]


def test_bad_names_and_lengths(tmp_path):
    with pytest.raises(ValueError, match="not 'a b'; rename"):
        foreign.write(tmp_path / "t", [tables.source("a b", [1], np.ones((1, 2)))], "hps", True)
    raw_files.hps_folder(tmp_path / "hps" / "t", ROWS)
    (tmp_path / "hps" / "t" / "emb_vector").write_bytes(b"\0" * 20)
    with pytest.raises(ValueError, match="emb_vector: 20 bytes are no float32 vectors for 3 keys"):
        foreign.read(tmp_path / "hps")
    (tmp_path / "hps" / "t" / "key").write_bytes(b"")
    with pytest.raises(ValueError, match="key: 0 bytes"):
        foreign.read(tmp_path / "hps")
    for head, match in [
        (b"bin\0", "with rows"),
        (b"bin\0" + struct.pack("<III", 2, 8, 8), "version 2"),
        (b"bin\0" + struct.pack("<III", 1, 8, 2**32 - 4), "values of 4294967292 bytes"),
        (b"bin\0" + struct.pack("<III", 1, 8, 8) + b"\0" * 17, "1 bytes over after 1 rows"),
    ]:
        (tmp_path / "t.bin").write_bytes(head)
        with pytest.raises(ValueError, match=rf"t\.bin.*{match}"):
            foreign.read(tmp_path / "t.bin")
