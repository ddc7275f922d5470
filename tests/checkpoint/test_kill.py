"""Whatever happens to who writes, the last complete checkpoint stays."""

import errno
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from merlin_embeddings import checkpoint
from merlin_embeddings.checkpoint import Checkpoint, Writer, disk
from tests.checkpoint import made
from tests.documented import ROOT

CALLS = {
    "new": ["at_every_boundary", False, True],
    "exchanged": ["at_every_boundary", True, True],
    "aside": ["at_every_boundary", True, False],
    "random": ["at_random", 40],
    "3 writers, 2 readers": ["of_many", 3, 2],
    "1 writer, 4 readers": ["of_many", 1, 4],
}


@pytest.fixture(scope="module")
def found():
    """What the calls returned, in a process that has imported the package once for all."""
    command = [sys.executable, "-m", "tests.checkpoint.killed", json.dumps(CALLS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("how", ["new", "exchanged", "aside"])
def test_at_every_boundary(found, how):
    seen = found[how]
    # Old until some moment, new from then on.
    moment = seen.index(2)
    before = None if how == "new" else 1
    assert seen == [before] * moment + [2] * (len(seen) - moment)
    # Before and after each of: two shards, their folders, two parts, the manifest, the rename ...
    assert moment > 20 and len(seen) - moment >= 2


def test_at_random_points(found):
    seen = found["random"]
    assert len(seen) == 39 and seen == sorted(seen)
    assert all(one <= at for at, one in enumerate(seen, 1))


def test_processes(found):
    assert found["3 writers, 2 readers"] == 3
    assert found["1 writer, 4 readers"] == 1


@pytest.mark.parametrize("writers, readers", [(5, 3), (2, 8)])
def test_threads(tmp_path, writers, readers):
    rng, info = np.random.default_rng(0), made.row_info(997)
    rows = made.without_scores({key: made.row_of(rng) for key in range(997)})

    def some(part, parts):
        return range(997 * part // parts, 997 * (part + 1) // parts)

    def write(part):
        with Writer(tmp_path / "a", part, writers) as writer:
            keys = some(part, writers)
            mine = {key: rows[key] for key in keys}
            writer.table(info, made.entries_of(info, mine), len(keys), keys=keys)

    def read(part):
        checkpoint = Checkpoint(tmp_path / "a")
        return made.rows_of(checkpoint.entries(info.name, keys=some(part, readers)), info)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(writers)))
        checkpoint.commit(tmp_path / "a", writers)
        for part, found in enumerate(threads.map(read, range(readers))):
            assert found == {key: rows[key] for key in some(part, readers)}


def test_all_has_reached_the_disk_before_the_name(tmp_path, monkeypatch):
    """A checkpoint is named once each of its files and folders was synced as it is."""
    synced, named = {}, []
    fsync, rename = os.fsync, disk._renameat2

    def content(path):
        return sorted(os.listdir(path)) if os.path.isdir(path) else open(path, "rb").read()

    def recording(descriptor):
        fsync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        synced[path] = content(path)

    def checking(old, new, flags):
        found = [str(old), *(str(path) for path in old.rglob("*"))]
        assert {path: synced.get(path) for path in found} == {p: content(p) for p in found}
        named.append(new)
        return rename(old, new, flags)

    monkeypatch.setattr(os, "fsync", recording)
    monkeypatch.setattr(disk, "_renameat2", checking)
    info = made.id_info(virtual_shards=4)
    states = [{"pins": np.arange(3)}] * 4
    path = tmp_path / "new" / "a"
    made.write_ids(path, {1: made.row_of(np.random.default_rng(0))}, info, states=states)
    assert named == [path]
    for folder in (tmp_path, tmp_path / "new"):
        assert synced[str(folder)] == content(folder)


def test_full_disk(tmp_path, monkeypatch):
    rng, info = np.random.default_rng(0), made.id_info()
    rows = {key: made.row_of(rng) for key in range(500)}
    made.write_ids(tmp_path / "a", rows, info)
    left, pwrite = [0], os.pwrite

    def short(descriptor, data, offset):
        if left[0] < len(data):
            if left[0]:
                data, left[0] = data[: left[0]], 0
                return pwrite(descriptor, data, offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= len(data)
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", short)
    failed = 0
    for room in range(0, 1 << 20, 997):
        left[0] = room
        try:
            made.write_ids(tmp_path / "a", {**rows, 7: rows[8]}, info, parts=1, overwrite=True)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            assert os.listdir(tmp_path) == ["a"]
            failed += 1
        else:
            break
        assert made.rows_of(Checkpoint(tmp_path / "a").entries("ids"), info) == rows
    assert failed > 20
    assert made.rows_of(Checkpoint(tmp_path / "a").entries("ids"), info) == {**rows, 7: rows[8]}


def test_full_disk_names_the_file(tmp_path):
    """A real file system of 1 MiB, where it may be mounted."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("a file system can't be mounted here")
    try:
        info = made.row_info(40_000)
        rows = dict.fromkeys(range(40_000), made.row_of(np.random.default_rng(0)))
        with pytest.raises(OSError, match=r"No space left on device: '.*user%2Fitem.*'"):
            made.write_rows(small / "a", rows, info, parts=1)
        assert os.listdir(small) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_name_is_taken(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(FileExistsError, match="save under another one, or with overwrite=True"):
        Writer(tmp_path / "a")
    with Writer(tmp_path / "b"):
        (tmp_path / "b").mkdir()
    with pytest.raises(FileExistsError, match="there is something of this name"):
        checkpoint.commit(tmp_path / "b")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"] and os.listdir(tmp_path / "b") == []


def test_one_writer_a_part(tmp_path):
    with Writer(tmp_path / "a", 1, 2) as writer:
        with pytest.raises(FileExistsError, match="part 1 is being written by another writer"):
            Writer(tmp_path / "a", 1, 2)
        with Writer(tmp_path / "a", 0, 2):
            writer.arrays("dense", {})
    with pytest.raises(FileNotFoundError, match="part 2 of 3 wasn't finished"):
        checkpoint.commit(tmp_path / "a", parts=3)
    checkpoint.commit(tmp_path / "a", parts=2)
    assert Checkpoint(tmp_path / "a").groups == ["dense"]


def test_what_fails_leaves_nothing(tmp_path):
    def entries():
        yield from made.entries_of(info, {1: made.row_of(np.random.default_rng(0))})
        raise RuntimeError("no more")

    info = made.id_info()
    with pytest.raises(RuntimeError, match="no more"), Writer(tmp_path / "a") as writer:
        writer.arrays("dense", {"a": np.ones(3)})
        writer.table(info, entries(), 2)
    assert os.listdir(tmp_path) == []
