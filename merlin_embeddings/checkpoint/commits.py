"""Makes a checkpoint of the parts that writers have finished."""

from __future__ import annotations

import importlib.metadata
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from merlin_embeddings.checkpoint import checks, disk, manifest, whole
from merlin_embeddings.checkpoint.errors import BrokenCheckpoint
from merlin_embeddings.checkpoint.manifest import Base, FileInfo, Manifest, Table
from merlin_embeddings.checkpoint.reader import MANIFEST, Checkpoint
from merlin_embeddings.checkpoint.writer import lock_part, part_file

_PACKAGES = ("merlin-embeddings", "tensorflow", "tensorflow-cpu", "keras", "numpy")


def commit(
    path: str | os.PathLike,
    parts: int = 1,
    step: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    base: str | os.PathLike | None = None,
    overwrite: bool = False,
) -> None:
    """Makes a checkpoint of N finished parts; it is there as a whole or not at all.

    Args:
        path: of the checkpoint.
        parts: N.
        step: how many training steps have been made.
        metadata: whatever else is to be kept; plain JSON data.
        base: the checkpoint that tables with `full=False` go on from; what this one doesn't have
            is read from there. It has to stay where it is from here, or both are moved together.
        overwrite: whether a checkpoint of this name is replaced.

    What the parts wrote is removed if anything but a part being missing is wrong.

    Raises:
        FileNotFoundError: a part is missing, or the base.
        FileExistsError: something has the name, and isn't to be replaced; or another writer is at
            a part.
        ValueError: parts that don't fit together, that lack rows or have them twice, or a base that
            doesn't fit.
    """
    path = Path(path).absolute()
    folder = disk.partial(path)
    for part in range(parts):
        if not (folder / part_file(part)).exists():
            raise FileNotFoundError(
                f"{folder / part_file(part)} is missing: part {part} of {parts} wasn't finished"
            )
    with ExitStack() as locks:
        # Another writer of the same name would change the files that are committed here.
        for part in range(parts):
            locks.callback(os.close, lock_part(path, part))
        _commit(path, parts, step, metadata, base, overwrite)


def require_apart(path: Path, before: Checkpoint) -> None:
    """Checks that a checkpoint isn't written over those that it is made from.

    Raises:
        ValueError: it is.
    """
    for one in before.chain:
        if one.path == path or (path.exists() and os.path.samefile(one.path, path)):
            raise ValueError(
                f"checkpoint '{path}': it can't go on from itself; {before.path} needs "
                f"{one.path}, which would be replaced. Save under another name"
            )


def _commit(
    path: Path,
    parts: int,
    step: int | None,
    metadata: Mapping[str, Any] | None,
    base: str | os.PathLike | None,
    overwrite: bool,
) -> None:
    folder = disk.partial(path)
    try:
        content = _manifest(path, parts, step, metadata, base)
        disk.require_free(path, overwrite)
        disk.write_file(folder / MANIFEST, content)
        disk.sync_folder(folder)
        disk.move_in(folder, path, overwrite)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _manifest(
    path: Path,
    parts: int,
    step: int | None,
    metadata: Mapping[str, Any] | None,
    base: str | os.PathLike | None,
) -> bytes:
    """The manifest's content; what isn't in it is removed from the folder."""
    folder = disk.partial(path)
    tables, groups = _merged(folder, parts)
    link = None
    if base is not None:
        link = _link(path, Path(base).absolute(), tables)
    elif increments := [name for name, table in tables.items() if not table.info.full]:
        raise ValueError(
            f"checkpoint '{path}': table '{increments[0]}' has what changed, and there is no base"
        )
    found = Manifest(
        id=secrets.token_hex(16),
        tables=tables,
        groups=groups,
        step=step,
        metadata=dict(metadata or {}),
        packages=_packages(),
        base=link,
    )
    content = found.to_bytes()
    # What can't be read isn't committed.
    Manifest.from_bytes(content, "the manifest")
    _remove_others(folder, tables, groups)
    return content


def _merged(folder: Path, parts: int) -> tuple[dict[str, Table], dict[str, FileInfo]]:
    tables: dict[str, Table] = {}
    groups: dict[str, FileInfo] = {}
    for part in range(parts):
        file = folder / part_file(part)
        content = file.read_bytes()
        some, more = manifest.contents_from_json(checks.parse(content, str(file)), str(file))
        for name, table in some.items():
            known = tables.get(name, Table(table.info, ()))
            if known.info != table.info:
                raise ValueError(
                    f"table '{name}' is {table.info} in part {part}, and was {known.info} before"
                )
            tables[name] = Table(table.info, (*known.shards, *table.shards))
        groups |= more
    for table in tables.values():
        _require_whole(table)
    return tables, groups


def _require_whole(table: Table) -> None:
    try:
        whole.require_whole(table, f"table '{table.info.name}'")
    except BrokenCheckpoint as error:
        raise ValueError(str(error)) from None


def _link(path: Path, base: Path, tables: Mapping[str, Table]) -> Base:
    before = Checkpoint(base)
    require_apart(path, before)
    for name, table in tables.items():
        if table.info.full:
            continue
        if name not in before.tables:
            raise ValueError(f"table '{name}' has what changed, and base '{base}' doesn't have it")
        whole.require_same_rows(before.tables[name], table.info, f"base '{base}'")
    return Base(os.path.relpath(_resolved(base), _resolved(path)), before.id)


def _resolved(path: Path) -> Path:
    """Where a checkpoint stands, without links to the folders that it is in."""
    return Path(os.path.realpath(path.parent)) / path.name


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _remove_others(
    folder: Path, tables: Mapping[str, Table], groups: Mapping[str, FileInfo]
) -> None:
    """Removes what earlier attempts left."""
    known = {file.file for file in groups.values()}
    for table in tables.values():
        for shard in table.shards:
            known |= {shard.file.file} | ({shard.state.file} if shard.state else set())
    needed: set[str] = set()
    for file in known:
        needed |= {file, *(str(parent) for parent in Path(file).parents)}
    for found in sorted(folder.rglob("*"), reverse=True):
        if str(found.relative_to(folder)) in needed:
            continue
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)
