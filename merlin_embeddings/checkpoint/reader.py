"""Reads checkpoints: all of one, or the rows that are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from merlin_embeddings.checkpoint import ahead, disk, whole
from merlin_embeddings.checkpoint.arrays import Arrays
from merlin_embeddings.checkpoint.errors import BrokenCheckpoint
from merlin_embeddings.checkpoint.files import open_file
from merlin_embeddings.checkpoint.manifest import FileInfo, Manifest, ShardInfo, Table, TableInfo
from merlin_embeddings.checkpoint.rows import ShardReader, Wanted, among
from merlin_embeddings.checkpoint.shards import Specs, specs_of
from merlin_embeddings.tables import Entries

MANIFEST = "manifest.json"
# More than any real one has.
_LARGEST_MANIFEST = 1 << 30
_LONGEST_CHAIN = 1000


class State(NamedTuple):
    """What an id map keeps beside its ids.

    Attributes:
        virtual_shards: (first, stop), whose it is; None: the whole table's.
        arrays: by name, read when they are asked for.
    """

    virtual_shards: tuple[int, int] | None
    arrays: Mapping[str, np.ndarray]


class Checkpoint:
    """A checkpoint on disk, and those that it goes on from.

    The manifests are read and checked, and that all files are there in their full length. What is
    in the files is read, and checked block by block, when it is asked for.

    Args:
        path: its folder.

    Attributes:
        path: its folder.
        base: the checkpoint that it goes on from, or None.

    Raises:
        FileNotFoundError: there is no checkpoint, or a file of it is missing.
        BrokenCheckpoint: a file isn't what the format says, or of a newer version of it.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self._open(Path(path).absolute(), [])

    @classmethod
    def _of_chain(cls, path: Path, ids: list[str]) -> Checkpoint:
        self = cls.__new__(cls)
        self._open(path, ids)
        return self

    def _open(self, path: Path, ids: list[str]) -> None:
        self.path = disk.present(path)
        self._manifest = _read_manifest(self.path)
        if self.id in ids or len(ids) >= _LONGEST_CHAIN:
            raise BrokenCheckpoint(f"{self.path}: its bases lead back to it, or are too many")
        self._require_files()
        self.base = self._open_base([*ids, self.id])
        before = {} if self.base is None else self.base.tables
        for name, table in self._manifest.tables.items():
            what = f"{self.path / MANIFEST}, table '{name}'"
            whole.require_whole(table, what)
            if not table.info.full and name not in before:
                raise BrokenCheckpoint(f"{what} has what changed, and no base has the rest")
            if not table.info.full:
                _require_same(before[name], table.info, what)
        own = {name: table.info for name, table in self._manifest.tables.items()}
        self._tables = {**before, **own}

    def __repr__(self) -> str:
        return f"Checkpoint('{self.path}', step={self.step}, tables={list(self.tables)})"

    # What is known without reading rows

    @property
    def id(self) -> str:
        """What no other checkpoint is called."""
        return self._manifest.id

    @property
    def step(self) -> int | None:
        """How many training steps had been made."""
        return self._manifest.step

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What was to be kept beside."""
        return MappingProxyType(dict(self._manifest.metadata))

    @property
    def packages(self) -> Mapping[str, str]:
        """The versions of the packages that wrote it."""
        return MappingProxyType(dict(self._manifest.packages))

    @property
    def tables(self) -> Mapping[str, TableInfo]:
        """The tables by name, those of the base among them."""
        return MappingProxyType(self._tables)

    @property
    def groups(self) -> Sequence[str]:
        """The groups of named arrays, those of the base among them."""
        before = [] if self.base is None else self.base.groups
        return sorted({*before, *self._manifest.groups})

    @property
    def chain(self) -> Sequence[Checkpoint]:
        """This checkpoint, its base, the base's, and so on: all that have to stay."""
        return [self, *(() if self.base is None else self.base.chain)]

    def is_increment(self, table: str) -> bool:
        """Whether its files have only some of a table's rows, or none, and bases have the rest."""
        return self.origin(table) is not self

    def origin(self, table: str) -> Checkpoint:
        """Which of the chain has all rows of a table."""
        self._require_table(table)
        own = self._manifest.tables.get(table)
        if own is not None and own.info.full:
            return self
        assert self.base is not None
        return self.base.origin(table)

    def has_ranges(self, table: str) -> bool:
        """Whether all rows of a table are there, in files of ranges of rows and what changed."""
        shards = self.origin(table).shards(table)
        return bool(shards) and all(shard.keys is not None for shard in shards)

    def shards(self, table: str) -> Sequence[ShardInfo]:
        """The table's files here, without those of bases."""
        self._require_table(table)
        found = self._manifest.tables.get(table)
        return () if found is None else found.shards

    def own_tables(self) -> Sequence[Table]:
        """What this checkpoint's own files have of tables."""
        return list(self._manifest.tables.values())

    def files(self) -> Sequence[tuple[FileInfo, Specs | None]]:
        """This checkpoint's own files, and which tensors they must have; None: any."""
        found: list[tuple[FileInfo, Specs | None]] = [
            (file, None) for file in self._manifest.groups.values()
        ]
        for table in self._manifest.tables.values():
            for shard in table.shards:
                found.append((shard.file, specs_of(table.info, shard)))
                if shard.state is not None:
                    found.append((shard.state, None))
        return found

    # Reading

    def arrays(self, group: str) -> Mapping[str, np.ndarray]:
        """A group of named arrays, each read when it is asked for.

        Raises:
            KeyError: no such group.
        """
        if group in self._manifest.groups:
            return Arrays(self.path, self._manifest.groups[group])
        if self.base is None:
            raise KeyError(f"{self.path} has no group '{group}'; it has {self.groups}")
        return self.base.arrays(group)

    def entries(
        self,
        table: str,
        keys: range | Any = None,
        virtual_shards: tuple[int, int] | None = None,
        slots: Sequence[str] | None = None,
        chunk: int = 65536,
    ) -> Iterator[Entries]:
        """The rows of a table, each once: where bases are, as the newest has it.

        Reads what is needed of the files that have it, a little ahead of who takes it. The order is
        that of the files.

        Args:
            table: its name.
            keys: a range with step 1, or [K] integers: which rows. None: all.
            virtual_shards: (first, stop): only the ids of these.
            slots: names of the slots to read. None: all.
            chunk: the largest number of rows in one Entries.

        Returns:
            An iterator of Entries.

        Raises:
            KeyError: no such table, or slot.
            ValueError: a chunk below 1, or virtual shards that aren't the table's.
            BrokenCheckpoint: while iterating, a file isn't what was written.
        """
        info = self._require_table(table)
        names = list(info.slots) if slots is None else list(slots)
        for name in names:
            if name not in info.slots:
                raise KeyError(f"{self.path}, table '{table}': no slot '{name}'")
        if chunk < 1:
            raise ValueError(f"table '{table}': chunk must be at least 1, got {chunk}")
        if virtual_shards is not None:
            first, stop = virtual_shards
            if not 0 <= first <= stop <= (info.virtual_shards or 0):
                raise ValueError(
                    f"{self.path}, table '{table}' has {info.virtual_shards} virtual shards; "
                    f"{virtual_shards} aren't some of them"
                )
        return self._entries(info, Wanted(_as_wanted(keys, table), virtual_shards, names, chunk))

    def keys(
        self, table: str, virtual_shards: tuple[int, int] | None = None
    ) -> Iterator[np.ndarray]:
        """The keys of a table, [N] int64 at a time, each once; nothing else is read."""
        wanted = Wanted(None, virtual_shards, (), 1 << 20, bare=True)
        return (some.keys for some in self._entries(self._require_table(table), wanted))

    def own(self, table: str, chunk: int = 65536) -> Iterator[Entries]:
        """The rows that are in this checkpoint's own files: of an increment, those that changed."""
        info = self._require_table(table)
        wanted = Wanted(None, None, list(info.slots), chunk)
        for shard in self.shards(table):
            yield from self._of_shard(info, shard, wanted)

    def erased(self, table: str) -> np.ndarray:
        """[E] int64: the keys that this checkpoint says to be gone since its base."""
        self._require_table(table)
        found = [np.empty(0, np.int64)]
        own = self._manifest.tables.get(table)
        for shard in own.shards if own else ():
            if shard.erased:
                with ShardReader(self.path, own.info, shard) as reader:  # type: ignore[union-attr]
                    found.append(reader.erased())
        return np.unique(np.concatenate(found))

    def state(self, table: str, virtual_shards: tuple[int, int] | None = None) -> list[State]:
        """What the table's id map keeps beside its ids, as it was written.

        Args:
            table: its name.
            virtual_shards: (first, stop): only what touches these.

        Returns:
            One State for each virtual shard where it was written apart, else for each file.
        """
        self._require_table(table)
        if table not in self._manifest.tables:
            return [] if self.base is None else self.base.state(table, virtual_shards)
        found = []
        for shard in self._manifest.tables[table].shards:
            if shard.state is None:
                continue
            for whose, arrays in self._states_of(shard):
                touches = (
                    virtual_shards is None
                    or whose is None
                    or (whose[0] < virtual_shards[1] and virtual_shards[0] < whose[1])
                )
                if touches:
                    found.append(State(whose, arrays))
        return found

    # Parts

    def _states_of(
        self, shard: ShardInfo
    ) -> Iterator[tuple[tuple[int, int] | None, Mapping[str, np.ndarray]]]:
        assert shard.state is not None
        arrays = Arrays(self.path, shard.state)
        if shard.states_apart and shard.virtual_shards is not None:
            for number in range(*shard.virtual_shards):
                yield (number, number + 1), arrays.under(f"{number}.")
        else:
            yield shard.virtual_shards, arrays

    def _entries(self, info: TableInfo, wanted: Wanted) -> Iterator[Entries]:
        hidden = np.empty(0, np.int64)
        chain: Checkpoint | None = self
        while chain is not None:
            own = chain._manifest.tables.get(info.name)
            seen = [hidden]
            last = own is not None and own.info.full
            for shard in own.shards if own else ():
                for some in chain._of_shard(own.info, shard, wanted):  # type: ignore[union-attr]
                    if not last:
                        seen.append(some.keys)
                    kept = _without(some, hidden)
                    if len(kept):
                        yield kept
            if last:
                return
            if own is not None:
                hidden = np.unique(np.concatenate([*seen, chain.erased(info.name)]))
            chain = chain.base

    def _of_shard(self, info: TableInfo, shard: ShardInfo, wanted: Wanted) -> Iterator[Entries]:
        if _misses(shard, wanted):
            return
        with ShardReader(self.path, info, shard) as reader:
            yield from ahead.run(reader.jobs(wanted))

    def _require_table(self, table: str) -> TableInfo:
        if table not in self._tables:
            raise KeyError(f"{self.path} has no table '{table}'; it has {list(self._tables)}")
        return self._tables[table]

    def _require_files(self) -> None:
        """Checks names and lengths, which costs no reading."""
        names = set()
        for file, _ in self.files():
            if file.file in names:
                raise BrokenCheckpoint(f"{self.path / MANIFEST} names {file.file} twice")
            names.add(file.file)
            Arrays(self.path, file).require_there()

    def _open_base(self, ids: list[str]) -> Checkpoint | None:
        link = self._manifest.base
        if link is None:
            return None
        # A link to this folder doesn't change where the base is, seen from it.
        path = Path(os.path.normpath(os.path.join(os.path.realpath(self.path), link.path)))
        try:
            base = Checkpoint._of_chain(path, ids)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.path} goes on from {path}: {error}") from None
        if base.id != link.id:
            raise BrokenCheckpoint(
                f"{self.path} goes on from a checkpoint that was at {path}; another one is there "
                "now"
            )
        return base


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        with open(open_file(path), "rb") as file:
            if os.fstat(file.fileno()).st_size > _LARGEST_MANIFEST:
                raise BrokenCheckpoint(f"{path} is longer than {_LARGEST_MANIFEST} bytes")
            content = file.read()
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no checkpoint at {folder}: no {MANIFEST}") from None
    return Manifest.from_bytes(content, str(path))


def _as_wanted(keys: Any, table: str) -> tuple[int, int] | np.ndarray | None:
    if keys is None:
        return None
    if isinstance(keys, range):
        if keys.step != 1:
            raise ValueError(f"table '{table}': keys={keys}; a range has to have step 1")
        return keys.start, max(keys.stop, keys.start)
    array = np.asarray(keys)
    if array.size and (array.ndim != 1 or array.dtype.kind not in "iu"):
        raise ValueError(
            f"table '{table}': keys must be a list of integers, got {array.dtype} of shape "
            f"{list(array.shape)}"
        )
    return np.unique(array.astype(np.int64))


def _misses(shard: ShardInfo, wanted: Wanted) -> bool:
    """Whether nothing that is asked for is in a shard, by what the manifest says."""
    asked, here = wanted.virtual_shards, shard.virtual_shards
    if asked is not None and here is not None and (asked[1] <= here[0] or here[1] <= asked[0]):
        return True
    keys = wanted.keys
    if shard.keys is None or keys is None:
        return shard.count == 0
    start, stop = shard.keys
    if isinstance(keys, tuple):
        return keys[1] <= start or stop <= keys[0]
    return bool(np.searchsorted(keys, start) == np.searchsorted(keys, stop))


def _without(entries: Entries, hidden: np.ndarray) -> Entries:
    if not len(hidden):
        return entries
    kept = ~among(entries.keys, hidden)
    return entries if kept.all() else entries.take(kept)


def _require_same(before: TableInfo, after: TableInfo, what: str) -> None:
    try:
        whole.require_same_rows(before, after, what)
    except ValueError as error:
        raise BrokenCheckpoint(str(error)) from None
