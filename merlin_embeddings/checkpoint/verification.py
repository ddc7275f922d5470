"""Reads all of a checkpoint, and says what is wrong with it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from merlin_embeddings.checkpoint import shards
from merlin_embeddings.checkpoint.files import HEADER, FileReader
from merlin_embeddings.checkpoint.manifest import FileInfo, Table
from merlin_embeddings.checkpoint.reader import Checkpoint

# Blocks of a tensor that are read at a time.
_BLOCKS = 16


@dataclass(frozen=True)
class Verified:
    """What was read, and what is wrong with it.

    Attributes:
        files: how many.
        bytes: of these files.
        problems: a sentence each; none: all is as it was written.
    """

    files: int
    bytes: int
    problems: tuple[str, ...]


def verify(path: str | os.PathLike) -> Verified:
    """Reads all files of a checkpoint, and of those that it goes on from.

    Every checksum is computed; keys have to be unique, and within the table's rows. Takes 8 bytes
    of memory for each key that a file has.

    Args:
        path: of the checkpoint.

    Raises:
        FileNotFoundError: there is no checkpoint, or a file of it is missing.
        BrokenCheckpoint: the manifest, or the length of a file, is wrong already.
    """
    files = size = 0
    problems: list[str] = []
    for one in Checkpoint(path).chain:
        for file, specs in one.files():
            files, size = files + 1, size + file.bytes
            problems += _wrong_blocks(one.path, file, specs)
        if not problems:
            for table in one.own_tables():
                problems += _wrong_keys(one.path, table)
    return Verified(files, size, tuple(problems))


def _wrong_blocks(folder: Path, info: FileInfo, specs: shards.Specs | None) -> list[str]:
    problems = []
    try:
        with FileReader(folder, info, specs) as file:
            step = info.block * _BLOCKS
            for name in [name for name in info.checksums if name != HEADER]:
                for at in range(0, file.tensors[name].entries, step):
                    stop = min(at + step, file.tensors[name].entries)
                    try:
                        file.read(name, at, stop)
                    except ValueError as error:
                        problems.append(str(error))
    except (ValueError, OSError) as error:
        problems.append(str(error))
    return problems


def _wrong_keys(folder: Path, table: Table) -> list[str]:
    info, found, gone = table.info, [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for shard in table.shards:
        with FileReader(folder, shard.file, shards.specs_of(info, shard)) as file:
            if shard.keys is None:
                found.append(file.read("keys"))
            if shard.erased:
                gone.append(file.read("erased"))
    what = f"{folder}, table '{info.name}'"
    keys = np.sort(np.concatenate(found))
    problems = []
    twice = keys[1:][keys[1:] == keys[:-1]]
    if len(twice):
        problems.append(f"{what}: key {twice[0]} stands twice")
    ranges = [shard.keys for shard in table.shards if shard.keys is not None]
    for start, stop in ranges:
        if np.searchsorted(keys, start) != np.searchsorted(keys, stop):
            problems.append(f"{what}: rows {start}..{stop - 1} are in a range, and by key again")
    if info.key == "row" and len(keys) and (keys[0] < 0 or keys[-1] >= info.rows):
        problems.append(f"{what}: key {keys[0] if keys[0] < 0 else keys[-1]} is no row of it")
    if np.isin(np.concatenate(gone), keys).any():
        problems.append(f"{what}: a key is both there and erased")
    return problems
