"""What all formats have in common."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_embeddings.checkpoint import Checkpoint, TableInfo, Writer, commit, foreign
from merlin_embeddings.checkpoint.foreign import FORMATS, Source
from merlin_embeddings.tables import Entries
from tests.checkpoint.foreign import tables

WITH_KEYS = ["checkpoint", "hps", "hps-bin", "numpy", "parquet", "sok"]
ENDINGS = {"keras": "t.h5", "torch": "t.pt"}


@pytest.mark.parametrize("to", FORMATS)
@given(data=st.data())
@settings(max_examples=12)
def test_all_rows_come_back(tmp_path_factory, to, data):
    folder = tmp_path_factory.mktemp("formats")
    rows, dim = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 6))
    ids = st.integers(-(2**63), 2**63 - 1)
    if to in WITH_KEYS and data.draw(st.booleans()):
        keys, key = data.draw(st.lists(ids, min_size=rows, max_size=rows, unique=True)), "id"
    else:
        keys, key = range(rows), "row"
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    dtype = data.draw(st.sampled_from(["float16", "bfloat16", "float32"]))
    vectors = rng.normal(size=(rows, dim)).astype(foreign.source.numpy_dtype(dtype))
    made = tables.source("t", keys, vectors, key=key, chunk=data.draw(st.integers(1, 9)))
    path = folder / ENDINGS.get(to, "t")
    assert foreign.write(path, [made], to) == []
    assert foreign.recognise(path) == to
    (found,) = foreign.read(path)
    expected = dict(zip(keys, vectors.astype("float64").tolist(), strict=True))
    read = tables.rows_of(found, data.draw(st.integers(1, 50)))
    assert {key: vector for key, (vector, _, _) in read.items()} == expected
    assert not [item for item in folder.iterdir() if item.name.startswith(".")]


@pytest.mark.parametrize("to", [name for name in FORMATS if name != "checkpoint"])
def test_memory_is_bounded(tmp_path, to):
    rows, dim = 600_000, 16

    def read(_):
        # The first half last: a dump of SOK's has to be put in order.
        for start in [*range(rows // 2, rows, 50_000), *range(0, rows // 2, 50_000)]:
            keys = np.arange(start, start + 50_000)
            yield Entries.trusted(keys, np.full((50_000, dim), start, "float32"), {})

    def in_order(chunk):
        for start in range(0, rows, 50_000):
            keys = np.arange(start, start + 50_000)
            yield Entries.trusted(keys, np.full((50_000, dim), start, "float32"), {})

    key = "row" if to in ("torch", "keras", "tensorflow") else "id"
    made = Source(TableInfo("t", rows, dim, key=key), rows, "m", in_order if key == "row" else read)
    path = tmp_path / ENDINGS.get(to, "t")
    tracemalloc.start()
    foreign.write(path, [made], to)
    written = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    total = sum(
        int(some.vectors[:, 0].astype("int64").sum())
        for some in foreign.read(path)[0].entries(8192)
    )
    again = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == sum(50_000 * start for start in range(0, rows, 50_000))
    # The table has 38 MB; keys and their order, while they are sorted, 14; a dump of SOK's is put
    # in order in chunks of 4 MB.
    assert max(written, again) < (30e6 if to == "sok" else 20e6), (written, again)


def test_a_format_that_is_not_recognised(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: no such file"):
        foreign.read(tmp_path / "nowhere")
    (tmp_path / "text").write_text("text")
    with pytest.raises(ValueError, match=r"is none that is known; say which"):
        foreign.read(tmp_path / "text")
    with pytest.raises(ValueError, match="no format 'csv'; there are checkpoint, sok"):
        foreign.read(tmp_path / "text", "csv")
    np.save(tmp_path / "a.npy", np.ones((1, 1)))
    with pytest.raises(ValueError, match="no table 'b'; there are 'a'"):
        foreign.read(tmp_path / "a.npy", tables=["b"])


@pytest.mark.parametrize("to", FORMATS)
def test_nothing_stays_of_what_fails(tmp_path, to):
    def read(_):
        yield Entries([0], np.ones((1, 2), "float32"))
        raise OSError("the disk is full")

    made = Source(TableInfo("t", 2, 2), 2, "memory", read)
    path = tmp_path / "new" / ENDINGS.get(to, "t")
    path.parent.mkdir()
    with pytest.raises(OSError, match="the disk is full"):
        foreign.write(path, [made], to)
    assert not list(path.parent.iterdir())
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=path.name):
        foreign.write(path, [made], to)
    assert path.read_text() == "mine"


def test_increments_of_a_checkpoint_are_applied(tmp_path):
    vectors = np.arange(12, dtype="float32").reshape(6, 2)
    info = TableInfo("t", 6, 2)
    with Writer(tmp_path / "a") as writer:
        writer.table(info, [Entries(range(6), vectors)], 6, range(6))
    commit(tmp_path / "a")
    with Writer(tmp_path / "b") as writer:
        changed = TableInfo("t", 6, 2, full=False)
        writer.table(changed, [Entries([4, 1], -vectors[[4, 1]])], 2)
    commit(tmp_path / "b", base=tmp_path / "a")
    foreign.convert(tmp_path / "b", tmp_path / "t.npy", "numpy")
    expected = vectors.copy()
    expected[[1, 4]] *= -1
    np.testing.assert_array_equal(np.load(tmp_path / "t.npy"), expected)


def test_a_compressed_table_has_no_vectors_to_give(tmp_path):
    info = TableInfo("t", 1, 2, compression={"name": "bloom"})
    made = Source(info, 1, "memory", lambda _: iter([Entries([0], np.ones((1, 2), "float32"))]))
    with pytest.raises(ValueError, match="'t' is compressed"):
        foreign.write(tmp_path / "t", [made], "hps")
    foreign.write(tmp_path / "t", [made], "checkpoint")
    assert Checkpoint(tmp_path / "t").tables["t"].compression == {"name": "bloom"}
