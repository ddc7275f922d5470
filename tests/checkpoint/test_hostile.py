"""Files that aren't what they should be: an error that names the file, and nothing else."""

import json
import os
import random
import shutil
import tracemalloc

import numpy as np
import pytest
import xxhash

from merlin_embeddings import checkpoint
from merlin_embeddings.checkpoint import BrokenCheckpoint, Checkpoint, Writer
from merlin_embeddings.checkpoint.manifest import sealed
from tests.checkpoint import made

SHARD = "tables/ids/00000-00000.safetensors"


@pytest.fixture
def path(tmp_path):
    """A checkpoint with all that one can have, and its base."""
    rng, info = np.random.default_rng(0), made.id_info(virtual_shards=2)
    made.write_ids(tmp_path / "base", {k: made.row_of(rng) for k in range(5)}, info)
    with Writer(tmp_path / "a") as writer:
        some = made.id_info(virtual_shards=2, full=False)
        rows = {key: made.row_of(rng) for key in range(10)}
        states = [{"pins": np.arange(3)}, {"pins": np.arange(2)}]
        writer.table(
            some,
            made.entries_of(some, rows),
            [6, 4],
            virtual_shards=(0, 2),
            state=states,
            erased=[11],
        )
        info = made.row_info(20)
        for keys in (range(10), range(10, 20)):
            rows = {key: made.row_of(rng) for key in keys}
            writer.table(info, made.entries_of(info, rows), 10, keys=keys)
        writer.arrays("dense", {"w": np.eye(3), "step": np.int64(1)})
    checkpoint.commit(tmp_path / "a", step=1000, base=tmp_path / "base", metadata={"a": 1})
    return tmp_path / "a"


def read_all(path):
    found = Checkpoint(path)
    for table in found.tables:
        for keys in (None, range(3, 8), [1, 15]):
            list(found.entries(table, keys=keys))
        found.erased(table)
        for state in found.state(table):
            dict(state.arrays)
    for group in found.groups:
        dict(found.arrays(group))
    list(checkpoint.changes(path))


def require_refused(path, file):
    """An error that names the file: on opening, or once what is in it is read."""
    with pytest.raises((BrokenCheckpoint, FileNotFoundError)) as caught:
        read_all(path)
    assert file in str(caught.value)


def change_manifest(path, change):
    """Changes the manifest as somebody would who knows how to seal it."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["checksum"]
    change(manifest)
    body = json.dumps(manifest, indent=1).removesuffix("\n}").encode()
    (path / "manifest.json").write_bytes(sealed(body))


def change_header(path, header):
    """Writes another header into a shard's file, as somebody would who knows the checksums."""
    content = (path / SHARD).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    content = header + content[start:]
    (path / SHARD).write_bytes(content)

    def change(manifest):
        shard = manifest["tables"]["ids"]["shards"][0]
        shard["bytes"] = len(content)
        shard["checksums"][""] = [xxhash.xxh3_64_hexdigest(header)]

    change_manifest(path, change)


def header_of(path):
    content = (path / SHARD).read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


def as_header(tensors):
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


def test_whole(path):
    read_all(path)
    assert checkpoint.verify(path).problems == ()


def files_of(path):
    return sorted(str(f.relative_to(path)) for f in path.rglob("*") if f.is_file())


def test_flipped_bits(path):
    """Of each file."""
    rng = random.Random(0)
    for file in files_of(path):
        whole = (path / file).read_bytes()
        for at in rng.sample(range(len(whole)), 20):
            broken = bytearray(whole)
            broken[at] ^= 1 << rng.randrange(8)
            (path / file).write_bytes(broken)
            require_refused(path, file)
        (path / file).write_bytes(whole)
    read_all(path)


def test_verify_finds_what_reading_would(path):
    file = path / "tables/ids/00000-00000.state.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    [problem] = checkpoint.verify(path).problems
    assert str(file) in problem and "checksum" in problem


def test_cut_and_longer(path):
    whole = (path / SHARD).read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for length in [*range(0, header + 1, 7), len(whole) - 1]:
        (path / SHARD).write_bytes(whole[:length])
        require_refused(path, SHARD)
    (path / SHARD).write_bytes(whole + b"\0")
    require_refused(path, SHARD)


def test_header_cut_at_each_byte(path):
    """By somebody who makes lengths and checksums fit."""
    whole = as_header(header_of(path))
    manifest, shard = (path / "manifest.json").read_bytes(), (path / SHARD).read_bytes()
    for length in range(len(whole)):
        change_header(path, whole[:length])
        require_refused(path, SHARD)
        (path / "manifest.json").write_bytes(manifest)
        (path / SHARD).write_bytes(shard)


def test_manifest_cut_at_each_byte(path):
    whole = (path / "manifest.json").read_bytes()
    for length in range(0, len(whole), 3):
        (path / "manifest.json").write_bytes(whole[:length])
        require_refused(path, "manifest.json")


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 200_000_000])
def test_huge_header(path, length):
    tracemalloc.start()
    change_header(path, length.to_bytes(8, "little") + b"{}")
    require_refused(path, SHARD)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_tensors_that_cannot_be(path):
    tensors = header_of(path)

    def changed(name, **values):
        return {**tensors, name: {**tensors[name], **values}}

    begin, end = tensors["vectors"]["data_offsets"]
    bad = [
        changed("vectors", data_offsets=[begin - 8, end - 8]),  # overlapping
        changed("vectors", data_offsets=[begin + 8, end + 8]),
        changed("vectors", shape=[2**61, 3]),
        changed("vectors", shape=[2**62, 2**62, 0], data_offsets=[begin, begin]),
        changed("vectors", shape=[-10, -3]),
        changed("vectors", shape=[30]),
        changed("vectors", dtype="I32"),
        changed("vectors", dtype="X"),
        changed("vectors", dtype=None),
        changed("keys", shape="many"),
        {name: tensor for name, tensor in tensors.items() if name != "keys"},
        {**tensors, "more": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}},
        [],
    ]
    for header in bad:
        shutil.copytree(path, path.with_name("b"))
        change_header(path.with_name("b"), as_header(header))
        require_refused(path.with_name("b"), SHARD)
        shutil.rmtree(path.with_name("b"))


ELSEWHERE = ["../base/manifest.json", "/etc/passwd", "tables/../../base/manifest.json", "", "."]
ELSEWHERE += ["a//b", "tables/./x", "a\0b", "\ud800", "x" * 5000, "dense.safetensors", "tables"]


@pytest.mark.parametrize("file", ELSEWHERE)
def test_paths_that_lead_elsewhere(path, file):
    def change(manifest):
        manifest["tables"]["ids"]["shards"][0]["file"] = file

    change_manifest(path, change)
    require_refused(path, str(path))


@pytest.mark.parametrize("what", ["file", "folder", "pipe", "folder for a file"])
def test_links_and_pipes(path, what):
    file = path / SHARD
    if what == "folder":
        (path / "tables").rename(path.with_name("tables"))
        (path / "tables").symlink_to(path.with_name("tables"))
    else:
        file.rename(path.with_name("moved"))
        if what == "file":
            file.symlink_to(path.with_name("moved"))
        elif what == "pipe":
            os.mkfifo(file)
        else:
            file.mkdir()
    require_refused(path, SHARD)


def test_newer_version(path):
    change_manifest(path, lambda manifest: manifest.update(version=2))
    with pytest.raises(BrokenCheckpoint, match=r"is of version 2 .* Install a newer"):
        Checkpoint(path)


def test_missing_shard(path):
    (path / SHARD).unlink()
    with pytest.raises(FileNotFoundError, match=f"{SHARD} is missing; the manifest names it"):
        Checkpoint(path)
    with pytest.raises(FileNotFoundError, match=r"there is no checkpoint at .*/none"):
        Checkpoint(path.with_name("none"))


def test_ranges(path):
    info = made.row_info().name

    def keys(*ranges):
        def change(manifest):
            for shard, pair in zip(manifest["tables"][info]["shards"], ranges, strict=True):
                shard["keys"] = pair

        return change

    for ranges in [([0, 10], [9, 19]), ([0, 10], [0, 10]), ([1, 11], [11, 21]), ([0, 9], [10, 20])]:
        shutil.copytree(path, path.with_name("b"))
        change_manifest(path.with_name("b"), keys(*ranges))
        require_refused(path.with_name("b"), "manifest.json")
        shutil.rmtree(path.with_name("b"))


def test_chain_that_leads_back(path):
    own = json.loads((path / "manifest.json").read_text())["id"]
    change_manifest(path, lambda manifest: manifest["base"].update(path=".", id=own))
    with pytest.raises(BrokenCheckpoint, match="bases lead back to it"):
        Checkpoint(path)


NASTY = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    1e308,
    0.5,
    "",
    "x",
    "..",
    "\0",
    "a/b",
]
NASTY += [[], {}, [0], [[]], [0, 2**62], "float32", "int64", "bool", "id", "row", "9" * 5000]


def places(value, way=()):
    """The ways to all values in JSON data."""
    yield way
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*way, key))


def put(value, way, new):
    for key in way[:-1]:
        value = value[key]
    if new is NASTY:
        del value[way[-1]]
    else:
        value[way[-1]] = new


@pytest.mark.parametrize("seed", range(3))
def test_fuzz(path, seed):
    """Values replaced or removed by somebody who knows the checksums: refused, or read."""
    rng, outcomes = random.Random(seed), []
    manifest, shard = (path / "manifest.json").read_bytes(), (path / SHARD).read_bytes()
    header = header_of(path)
    tracemalloc.start()
    for number in range(120):
        target = json.loads(manifest if number % 3 else json.dumps(header))
        for _ in range(rng.randint(1, 2)):
            ways = [way for way in places(target) if way]
            put(target, rng.choice(ways), rng.choice([*NASTY, NASTY]))
        if number % 3:
            target.pop("checksum", None)
            body = json.dumps(target, indent=1).removesuffix("\n}").encode()
            (path / "manifest.json").write_bytes(sealed(body))
        else:
            change_header(path, as_header(target))
        tracemalloc.reset_peak()
        try:
            read_all(path)
            outcomes.append("read")
        except (BrokenCheckpoint, FileNotFoundError) as error:
            assert str(path.parent) in str(error)
            outcomes.append("refused")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        (path / "manifest.json").write_bytes(manifest)
        (path / SHARD).write_bytes(shard)
    tracemalloc.stop()
    assert outcomes.count("refused") > 60
