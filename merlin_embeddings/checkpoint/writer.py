"""Writes checkpoints: each of N writers its shards, then one of them commits all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from merlin_embeddings.checkpoint import disk, manifest, shards
from merlin_embeddings.checkpoint.files import FileWriter
from merlin_embeddings.checkpoint.layout import dtype_name, numpy_dtype
from merlin_embeddings.checkpoint.manifest import FileInfo, ShardInfo, Table, TableInfo
from merlin_embeddings.checkpoint.names import folder_name
from merlin_embeddings.tables import Entries

_STATE_BLOCK = 65536

State = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class Writer:
    """Writes one part of a checkpoint into a folder beside its future place.

    N writers, in threads, processes or machines that share the file system, each write a part. All
    must have finished, each saying so to the others by its own means, before one of them calls
    `commit`: until then there is no checkpoint, and whatever had the name keeps it.

        >>> import tempfile, numpy as np
        >>> from merlin_embeddings import checkpoint
        >>> from merlin_embeddings.tables import Entries
        >>> path = tempfile.mkdtemp() + "/step-7"
        >>> with checkpoint.Writer(path) as writer:
        ...     rows = Entries(keys=[0, 1, 2], vectors=np.ones((3, 4), "float32"))
        ...     writer.table(checkpoint.TableInfo("item", 3, 4), [rows], count=3, keys=range(3))
        >>> checkpoint.commit(path, step=7)
        >>> checkpoint.Checkpoint(path).step
        7

    Args:
        path: of the checkpoint.
        part: which part, in [0, parts).
        parts: N.
        overwrite: whether a checkpoint of this name may be replaced; `commit` is told so as well.

    Raises:
        FileExistsError: something has the name, or another writer is at this part.
        ValueError: a part that isn't in [0, parts).
    """

    def __init__(
        self, path: str | os.PathLike, part: int = 0, parts: int = 1, overwrite: bool = False
    ) -> None:
        if not 0 <= part < parts:
            raise ValueError(f"checkpoint '{path}': part {part} isn't in [0, {parts})")
        self.path = Path(path).absolute()
        disk.require_free(self.path, overwrite)
        self._part = part
        self._folder = disk.partial(self.path)
        self._lock = lock_part(self.path, part)
        self._tables: dict[str, Table] = {}
        self._groups: dict[str, FileInfo] = {}
        self._made: list[Path] = []
        try:
            self._remove_leftovers(parts)
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self.finish()
        except BaseException:
            self.abort()
            raise

    def table(
        self,
        info: TableInfo,
        entries: Iterable[Entries],
        count: int | Sequence[int],
        keys: range | None = None,
        virtual_shards: tuple[int, int] | None = None,
        state: State | None = None,
        erased: Any = (),
    ) -> None:
        """Writes one file with some rows of a table, in memory for one of the entries.

        Args:
            info: what all writers say of the table alike.
            entries: the rows, with all slots of `info` and, if it has them, scores.
            count: how many rows they are; with `virtual_shards`, how many each of these has.
            keys: the keys, if they are a range in order; the file has none then.
            virtual_shards: (first, stop), whose ids these are; the entries come in their order.
            state: what their id map keeps beside: arrays by name, or such arrays for each of the
                virtual shards, which readers can then have apart.
            erased: [E] keys that were removed since the base.

        Raises:
            TypeError: another dtype than `info` says.
            ValueError: more or less than `info` and `count` say, or other keys.
            OSError: the disk is full, or fails.
        """
        numbers = [count] if isinstance(count, (int, np.integer)) else count
        # numpy's integers are none to JSON.
        each = tuple(int(number) for number in numbers)
        counts, total = None if virtual_shards is None else each, sum(each)
        keys = None if keys is None else range(int(keys.start), int(keys.stop), keys.step)
        if virtual_shards is not None:
            virtual_shards = (int(virtual_shards[0]), int(virtual_shards[1]))
        erased = np.asarray(erased, np.int64).reshape(-1)
        _check(info, total, counts, keys, virtual_shards)
        self._require_same(info)
        file = self._new_file(info.name)
        made = FileWriter(
            self._folder,
            file,
            shards.specs(info, total, keys is None, len(erased)),
            shards.block_of(info),
        )
        try:
            self._pour(made, info, entries, keys)
            if len(erased):
                made.append("erased", erased)
            written = made.finish()
        finally:
            made.close()
        shard = ShardInfo(
            file=written,
            count=total,
            keys=None if keys is None else (keys.start, keys.start + total),
            erased=len(erased),
            virtual_shards=virtual_shards,
            counts=counts,
            state=None if state is None else self._write_state(file, virtual_shards, state),
            states_apart=state is not None and not isinstance(state, Mapping),
        )
        known = self._tables.get(info.name, Table(info, ()))
        self._tables[info.name] = Table(info, (*known.shards, shard))

    def arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Writes a file of named arrays, such as dense weights; one writer writes a group.

        Args:
            name: of the group: letters, digits, "_" and "-".
            arrays: numbers of any shape, by name.

        Raises:
            ValueError: a name that can't be a file's, or a group that was written already.
        """
        if not name or name != folder_name(name) or "." in name or "~" in name:
            raise ValueError(f"checkpoint '{self.path}': a group can't be called {name!r}")
        if name in self._groups:
            raise ValueError(f"checkpoint '{self.path}': group '{name}' was written already")
        self._groups[name] = self._write_arrays(f"{name}.safetensors", arrays)

    def finish(self) -> None:
        """Has all of this part reach the disk, and says so to `commit`."""
        for folder in {path.parent for path in self._made}:
            disk.sync_folder(folder)
        content = manifest.contents_to_json(self._tables, self._groups)
        disk.write_file(self._folder / part_file(self._part), json.dumps(content).encode())
        disk.sync_folder(self._folder)
        self._release()

    def abort(self) -> None:
        """Removes what this part has written."""
        (self._folder / part_file(self._part)).unlink(missing_ok=True)
        for path in self._made:
            path.unlink(missing_ok=True)
        for folder in sorted({path.parent for path in self._made}, reverse=True):
            _remove_if_empty(folder)
        _remove_if_empty(self._folder / "tables")
        lock = self._folder / _lock_file(self._part)
        lock.unlink(missing_ok=True)
        _remove_if_empty(self._folder)
        self._release()

    # Parts

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _remove_leftovers(self, parts: int) -> None:
        """Removes what a writer of this part left that was killed."""
        mine = f"{self._part:05d}-"
        (self._folder / part_file(self._part)).unlink(missing_ok=True)
        for path in self._folder.glob("tables/*/*"):
            if parts == 1 or path.name.startswith(mine):
                path.unlink()
        if parts == 1:
            for path in self._folder.glob("*.safetensors"):
                path.unlink()

    def _new_file(self, table: str) -> str:
        folder = f"tables/{folder_name(table)}"
        disk.make_folder(self._folder / folder)
        number = len(self._tables[table].shards) if table in self._tables else 0
        file = f"{folder}/{self._part:05d}-{number:05d}.safetensors"
        self._made.append(self._folder / file)
        return file

    def _require_same(self, info: TableInfo) -> None:
        known = self._tables.get(info.name)
        if known is not None and known.info != info:
            raise ValueError(
                f"table '{info.name}' was {known.info} in its first file, and is {info} now"
            )

    def _pour(
        self, made: FileWriter, info: TableInfo, entries: Iterable[Entries], keys: range | None
    ) -> None:
        at = 0
        for some in entries:
            if not len(some) and not len(some.erased):
                continue
            _check_entries(info, some)
            if keys is None:
                made.append("keys", some.keys)
            elif not np.array_equal(
                some.keys, np.arange(keys.start + at, keys.start + at + len(some))
            ):
                raise ValueError(
                    f"table '{info.name}': the keys from {at} on aren't those of {keys}"
                )
            made.append("vectors", some.vectors)
            for name in info.slots:
                made.append(f"slot.{name}", some.slots[name])
            if info.scores is not None:
                made.append("scores", some.scores)  # type: ignore[arg-type]
            at += len(some)

    def _write_state(
        self, file: str, virtual_shards: tuple[int, int] | None, state: State
    ) -> FileInfo:
        if isinstance(state, Mapping):
            arrays = dict(state)
        else:
            first, stop = virtual_shards or (0, 0)
            if len(state) != stop - first:
                raise ValueError(
                    f"'{file}': {len(state)} states for virtual shards {first}..{stop - 1}"
                )
            arrays = {
                f"{first + number}.{name}": values
                for number, one in enumerate(state)
                for name, values in one.items()
            }
        return self._write_arrays(file.replace(".safetensors", ".state.safetensors"), arrays)

    def _write_arrays(self, file: str, arrays: Mapping[str, Any]) -> FileInfo:
        values = {name: np.asarray(array) for name, array in arrays.items()}
        specs = {
            name: (dtype_name(array.dtype, f"'{name}'"), array.shape)
            for name, array in values.items()
        }
        made = FileWriter(self._folder, file, specs, _STATE_BLOCK)
        self._made.append(self._folder / file)
        try:
            for name, array in values.items():
                made.append(name, array)
            return made.finish()
        finally:
            made.close()


def part_file(part: int) -> str:
    """What a part's own manifest is called."""
    return f"part-{part:05d}.json"


def lock_part(path: Path, part: int) -> int:
    """Takes a part of a checkpoint, until the descriptor is closed.

    Raises:
        FileExistsError: another writer is at it.
    """
    lock = disk.lock(disk.partial(path) / _lock_file(part))
    if lock is None:
        raise FileExistsError(
            f"checkpoint '{path}': part {part} is being written by another writer"
        )
    return lock


def _lock_file(part: int) -> str:
    return f"part-{part:05d}.lock"


def _check(
    info: TableInfo,
    total: int,
    counts: tuple[int, ...] | None,
    keys: range | None,
    virtual_shards: tuple[int, int] | None,
) -> None:
    what = f"table '{info.name}'"
    if info.dim < 1 or info.rows < 0:
        raise ValueError(f"{what}: a table can't be [{info.rows}, {info.dim}]")
    if keys is not None and (keys.step != 1 or len(keys) != total or keys.start < 0):
        raise ValueError(f"{what}: {keys} aren't the keys of {total} rows in order")
    if keys is not None and (info.key != "row" or keys.stop > info.rows):
        raise ValueError(f"{what}: {keys} aren't keys of its {info.rows} rows")
    if counts is not None and virtual_shards is not None:
        first, stop = virtual_shards
        if not 0 <= first <= stop <= (info.virtual_shards or 0) or len(counts) != stop - first:
            raise ValueError(
                f"{what}: virtual shards {virtual_shards} of {info.virtual_shards} need one count "
                f"each, got {len(counts)}"
            )


def _check_entries(info: TableInfo, entries: Entries) -> None:
    what = f"table '{info.name}'"
    if len(entries.erased):
        raise ValueError(f"{what}: what was erased is given to the writer as erased=")
    if entries.dim != info.dim:
        raise ValueError(f"{what}: vectors of {entries.dim} columns, not {info.dim}")
    if set(entries.slots) != set(info.slots):
        raise ValueError(f"{what}: slots {sorted(entries.slots)}, not {sorted(info.slots)}")
    if (entries.scores is None) != (info.scores is None):
        raise ValueError(f"{what}: scores must be {'given' if info.scores else 'left out'}")
    values: dict[str, tuple[np.ndarray, str, tuple[int, ...]]] = {
        "vectors": (entries.vectors, info.dtype, (info.dim,))
    }
    for name, slot in info.slots.items():
        values[f"slot '{name}'"] = (entries.slots[name], slot.dtype, slot.shape)
    for name, (array, dtype, shape) in values.items():
        if array.dtype.name != dtype:
            raise TypeError(f"{what}: {name} of {array.dtype}, not {dtype}")
        if array.shape[1:] != shape:
            raise ValueError(f"{what}: {name} of shape {list(array.shape)}, not [N, *{shape}]")
    if entries.scores is not None and entries.scores.dtype != numpy_dtype(info.scores or ""):
        raise TypeError(f"{what}: scores of {entries.scores.dtype}, not {info.scores}")
    if info.key == "row" and len(entries):
        low, high = entries.keys.min(), entries.keys.max()
        if low < 0 or high >= info.rows:
            raise ValueError(
                f"{what}: key {low if low < 0 else high} isn't one of its {info.rows} rows"
            )


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
