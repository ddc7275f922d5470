"""State dicts, read and written without torch."""

import io
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from merlin_embeddings.checkpoint import foreign
from merlin_embeddings.checkpoint.foreign import pickled
from tests.checkpoint.foreign import tables, torch_files

PEERS = Path(__file__).parents[3] / ".venv-peers" / "bin" / "python"


@pytest.fixture
def torchrec(tmp_path):
    path = tmp_path / "torchrec.pt"
    path.write_bytes(torch_files.content(torch_files.TORCHREC))
    return path


def test_torchrec(torchrec):
    found = foreign.read(torchrec)
    assert foreign.recognise(torchrec) == "torch"
    assert [(one.name, one.count, one.info.key) for one in found] == [
        ("t1", 4, "row"),
        ("t2", 5, "row"),
    ]
    # The archive's own bytes.
    with zipfile.ZipFile(torchrec) as archive:
        for number, one in enumerate(found):
            numbers = np.frombuffer(archive.read(f"tr/data/{number}"), "<f4").reshape(-1, 4)
            read = [vector for vector, _, _ in tables.rows_of(one, 2).values()]
            np.testing.assert_array_equal(read, numbers)


def test_a_state_dict_within_a_dict(tmp_path):
    path = tmp_path / "nested.pt"
    path.write_bytes(torch_files.content(torch_files.NESTED))
    (found,) = foreign.read(path)
    # Neither the layer with a bias nor what isn't called weight.
    assert (found.name, found.count, found.info.dim) == ("model.movies", 3, 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_written_is_read(tmp_path, dtype):
    kind = foreign.source.numpy_dtype(dtype)
    vectors = np.random.default_rng(0).normal(size=(20, 3)).astype(kind)
    foreign.write(tmp_path / "t.pt", [tables.source("t", range(20), vectors, key="row")], "torch")
    (found,) = foreign.read(tmp_path / "t.pt")
    assert (found.info.dtype, found.name) == (dtype, "t")
    read = [vector for vector, _, _ in tables.rows_of(found, 6).values()]
    np.testing.assert_array_equal(read, vectors.astype("float64"))


@pytest.mark.skipif(not PEERS.exists(), reason="no environment with torch (make .venv-peers/.pins)")
def test_torch_itself_reads_it(tmp_path):
    vectors = np.arange(12, dtype="float32").reshape(6, 2)
    made = [tables.source(name, range(6), vectors + n, key="row") for n, name in enumerate("ab")]
    foreign.write(tmp_path / "t.pt", made, "torch")
    code = f"""
import torch
for mmap in (False, True):
    read = torch.load({str(tmp_path / "t.pt")!r}, weights_only=True, mmap=mmap)
    assert list(read) == ["a.weight", "b.weight"], read
    bag = torch.nn.EmbeddingBag(6, 2)
    bag.load_state_dict({{"weight": read["b.weight"]}})
    assert bag.weight.tolist() == (torch.arange(12.0).reshape(6, 2) + 1).tolist()
torch.save(bag.state_dict(), {str(tmp_path / "back.pt")!r})
"""
    ran = subprocess.run([PEERS, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (found,) = foreign.read(tmp_path / "back.pt")
    assert found.name == "back"
    assert tables.rows_of(found)[5][0] == [11.0, 12.0]


# Files that mean harm


class _Call:
    def __init__(self, function, *arguments):
        self._called = function, arguments

    def __reduce__(self):
        return self._called


def archive(path, content, numbers=b"\0" * 32, compress=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compress) as opened:
        opened.writestr("t/data.pkl", content)
        opened.writestr("t/data/0", numbers)
    return path


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_nothing_is_executed(tmp_path, protocol):
    touched = tmp_path / "touched"
    content = pickle.dumps({"t.weight": _Call(open, str(touched), "w")}, protocol)
    path = archive(tmp_path / "t.pt", content)
    with pytest.raises(ValueError, match=r"t\.pt: its pickle (asks for '(io|_io)\.open'|has )"):
        foreign.read(path)
    assert not touched.exists()


def state_dict(rows, dim, offset=0, strides=None, numbers=8, key="0"):
    """By the standard library, with stand-ins that are called as torch's functions are."""
    storage, rebuild = type("FloatStorage", (), {"__module__": "torch"}), _rebuild_tensor_v2
    tensor = _Call(rebuild, ("storage", storage, key, "cpu", numbers), offset, (rows, dim),
                   strides or (dim, 1), False, {})  # fmt: skip

    class Pickler(pickle._Pickler):
        def persistent_id(self, value):
            return value if isinstance(value, tuple) and value[:1] == ("storage",) else None

        def save_global(self, value, name=None):
            named = {storage: "torch\nFloatStorage", rebuild: "torch._utils\n_rebuild_tensor_v2"}
            self.write(b"c" + named[value].encode() + b"\n")

        def save(self, value, *rest, **kept):
            if value is storage or value is rebuild:
                return self.save_global(value)
            return super().save(value, *rest, **kept)

    buffer = io.BytesIO()
    Pickler(buffer, 2).dump({"t.weight": tensor})
    return buffer.getvalue()


def _rebuild_tensor_v2(*_):
    raise AssertionError("called")


def test_the_stand_ins_read(tmp_path):
    numbers = np.arange(8, dtype="<f4")
    path = archive(tmp_path / "t.pt", state_dict(3, 2, offset=2), numbers.tobytes())
    (found,) = foreign.read(path)
    assert [row[0] for row in tables.rows_of(found).values()] == [[2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize(
    "told, match",
    [
        (dict(rows=5, dim=2), "its storage has only 32 bytes"),
        (dict(rows=2**40, dim=2**20), "its storage has only 32 bytes"),
        (dict(rows=4, dim=2, offset=1), "from number 1 on"),
        (dict(rows=4, dim=2, strides=(1, 4)), "isn't contiguous"),
        (dict(rows=4, dim=2, key="7"), "the numbers of 't.weight' aren't in it"),
        (dict(rows=-4, dim=-2), "no sizes"),
        (dict(rows=0, dim=2), "has no rows"),
    ],
)
def test_sizes_are_checked(tmp_path, told, match):
    path = archive(tmp_path / "t.pt", state_dict(**told))
    with pytest.raises(ValueError, match=rf"t\.pt.*{match}"):
        foreign.read(path)


def test_compressed_archives_are_refused(tmp_path):
    path = archive(tmp_path / "t.pt", state_dict(4, 2), compress=zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="compressed"):
        foreign.read(path)


def test_a_memory_of_any_size_and_a_dict_of_itself_cost_nothing():
    # LONG_BINPUT at place 2**32 - 1; a dict that holds itself.
    content = b"\x80\x02}r\xff\xff\xff\xffX\x01\0\0\0aj\xff\xff\xff\xffs."
    read = pickled.load(content, "t.pt")
    assert read["a"] is read


@pytest.mark.parametrize("content", [b"", b"\x80\x02", b".", b"\x80\x02}}.", b"\x80\x02u.", b"R."])
def test_damaged_pickles(content):
    with pytest.raises(ValueError, match=r"t\.pt: its pickle"):
        pickled.load(content, "t.pt")


def test_torch_is_not_imported():
    assert "torch" not in sys.modules
