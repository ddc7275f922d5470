"""Files cut anywhere and files with flipped bits: an error that names the file, or no harm."""

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from merlin_embeddings.checkpoint import foreign
from merlin_embeddings.checkpoint.foreign import FORMATS
from tests.checkpoint.foreign import tables

# The package's own format has a test of its own. A flipped bit in Parquet is pyarrow's to find, and
# pyarrow 14 doesn't always survive one.
THEIRS = [name for name in FORMATS if name != "checkpoint"]
CHECKED = [name for name in THEIRS if name != "parquet"]
BUDGET = 150
ENDINGS = {"keras": "t.h5", "torch": "t.pt"}


def made(to, folder):
    vectors = np.random.default_rng(0).normal(size=(9, 3)).astype("float32")
    path = folder / ENDINGS.get(to, "t")
    foreign.write(path, [tables.source("t", range(9), vectors, key="row")], to)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return path, sorted(files)


def read(path, to):
    for one in foreign.read(path, to):
        for some in one.entries(4):
            assert some.vectors.shape == (len(some), one.info.dim)


def tolerate(path, to, what):
    tracemalloc.start()
    try:
        read(path, to)
    except (ValueError, FileNotFoundError) as error:
        # Of whichever file of the folder it is.
        assert str(path) in str(error), (what, error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8e6, (what, peak)


@pytest.mark.parametrize("to", THEIRS)
def test_cut_anywhere(tmp_path, to):
    path, files = made(to, tmp_path)
    rng = random.Random(0)
    for file in files:
        content = file.read_bytes()
        places = range(len(content))
        for length in sorted(rng.sample(places, min(len(content), BUDGET // len(files)))):
            file.write_bytes(content[:length])
            tolerate(path, to, (file.name, length))
        file.write_bytes(content)
    read(path, to)


@pytest.mark.parametrize("to", CHECKED)
def test_bits_that_flip_and_numbers_that_grow(tmp_path, to):
    path, files = made(to, tmp_path)
    rng = random.Random(1)
    for number in range(BUDGET):
        file = files[number % len(files)]
        content = file.read_bytes()
        changed = bytearray(content)
        for _ in range(rng.choice([1, 1, 3])):
            place = rng.randrange(len(changed))
            changed[place] ^= 1 << rng.randrange(8)
        if number % 3 == 0:
            place = rng.randrange(max(len(changed) - 8, 1))
            size = rng.choice([4, 8])
            changed[place : place + size] = rng.choice([b"\xff" * size, b"\x7f" * size])
        file.write_bytes(changed)
        tolerate(path, to, (file.name, number))
        file.write_bytes(content)
    read(path, to)


def test_the_files_are_called_by_their_paths(tmp_path):
    path, files = made("hps", tmp_path)
    Path(files[0]).write_bytes(b"1")
    with pytest.raises(ValueError, match=str(files[0])):
        foreign.read(path)
