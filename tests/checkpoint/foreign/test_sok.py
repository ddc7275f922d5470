"""Dump folders of SparseOperationKit."""

import numpy as np
import pytest

from merlin_embeddings.checkpoint import foreign
from tests.checkpoint.foreign import raw_files, tables

VECTORS = {key: [key + 0.25, -key, 0.5, 3.0] for key in range(6)}


def dump(folder, keys, code="q", name="items"):
    folder.mkdir(exist_ok=True)
    numbers = [number for key in keys for number in VECTORS[key]]
    raw_files.sok_file(folder / f"{name}-key", 0, "", code, keys)
    raw_files.sok_file(folder / f"{name}-weight", 1, "", "f", numbers)
    raw_files.sok_file(folder / f"{name}-Adam-m", 2, "m", "f", [n + 1 for n in numbers])
    raw_files.sok_file(folder / f"{name}-Adam-v", 2, "v", "f", [n * 2 for n in numbers])


@pytest.mark.parametrize("code", "qQiI")
def test_what_two_ranks_wrote_comes_in_the_order_of_keys(tmp_path, code):
    # Rank 0 has the even rows, rank 1 the odd ones.
    dump(tmp_path / "sok", [0, 2, 4, 1, 3, 5], code)
    (found,) = foreign.read(tmp_path / "sok")
    assert foreign.recognise(tmp_path / "sok") == "sok"
    assert (found.name, found.count, found.info.key) == ("items", 6, "row")
    assert tables.keys_of(found, chunk=4) == [0, 1, 2, 3, 4, 5]
    for key, (vector, slots, _) in tables.rows_of(found).items():
        assert vector == VECTORS[key]
        assert slots["momentum"] == [number + 1 for number in VECTORS[key]]
        assert slots["velocity"] == [number * 2 for number in VECTORS[key]]


def test_ids_with_gaps_are_ids(tmp_path):
    dump(tmp_path / "sok", [5, 0, 3])
    (found,) = foreign.read(tmp_path / "sok")
    assert found.info.key == "id"
    assert tables.keys_of(found) == [0, 3, 5]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 0, 2, 1]])
def test_files_are_written_in_the_order_of_keys(tmp_path, order):
    ids = np.array([10, -5, 2**40, 7])[order]
    rng = np.random.default_rng(1)
    vectors, slot = rng.normal(size=(2, 4, 8)).astype("float32")
    made = tables.source("a/b", ids, vectors, {"accumulator": slot}, chunk=3)
    foreign.write(tmp_path / "out", [made], "sok")
    by_key = np.argsort(ids)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"a_b-key", "a_b-weight", "a_b-Adagrad-accumulator"}
    read = {name: raw_files.sok_numbers(tmp_path / "out" / name) for name in names}
    assert read["a_b-key"] == (0, "", "q", tuple(ids[by_key].tolist()))
    assert read["a_b-weight"] == (1, "", "f", tuple(vectors[by_key].ravel().tolist()))
    expected = (2, "accumulator", "f", tuple(slot[by_key].ravel().tolist()))
    assert read["a_b-Adagrad-accumulator"] == expected


def test_what_has_no_place_is_said(tmp_path):
    vectors = np.ones((2, 4), "float32")
    slots = {"accumulator": np.ones(2, "float32")}
    made = tables.source("t", [0, 1], vectors, slots, np.array([3, 4]))
    with pytest.raises(ValueError, match=r"slot 'accumulator'.*scores.*lossy"):
        foreign.write(tmp_path / "out", [made], "sok")
    assert not list(tmp_path.iterdir())
    lost = foreign.write(tmp_path / "out", [made], "sok", lossy=True)
    assert lost == ["table 't': slot 'accumulator'", "table 't': scores"]
    assert tables.rows_of(*foreign.read(tmp_path / "out"))[1] == ([1.0] * 4, {}, None)


def broken_twice(folder):
    dump(folder, [0, 1, 1])


def broken_unsigned(folder):
    dump(folder, [0, 1])
    raw_files.sok_file(folder / "items-key", 0, "", "Q", [1, 2**63])


def broken_lengths(folder):
    dump(folder, [0, 1])
    with open(folder / "items-weight", "ab") as file:
        file.write(b"\0" * 4)


def broken_slot(folder):
    dump(folder, [0, 1])
    raw_files.sok_file(folder / "items-Adam-m", 2, "m", "f", [1.0, 2.0])


def broken_kind(folder):
    dump(folder, [0, 1])
    (folder / "items-key").write_bytes((folder / "items-weight").read_bytes())


@pytest.mark.parametrize(
    "damage, match",
    [
        (broken_twice, "key 1 stands more than once"),
        (broken_unsigned, "9223372036854775808 is no int64"),
        (broken_lengths, "items-weight: 9 numbers"),
        (broken_slot, "items-Adam-m: 1 numbers a row"),
        (broken_kind, "items-key: its header says kind 1"),
    ],
)
def test_damage_is_named(tmp_path, damage, match):
    damage(tmp_path / "sok")
    with pytest.raises(ValueError, match=match):
        tables.rows_of(*foreign.read(tmp_path / "sok"))
