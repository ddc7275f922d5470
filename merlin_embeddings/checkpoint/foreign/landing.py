"""A new file or folder appears under its name when it is whole, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from merlin_embeddings.checkpoint import disk


@contextmanager
def new(path: Path) -> Iterator[Path]:
    """Where to write what is to have a name; it gets it at the end, when all has reached the disk.

    Args:
        path: the name.

    Raises:
        FileExistsError: there is something of this name.
        FileNotFoundError: there is no folder to put it in.
    """
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path}: is there already; choose another name, or remove it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: no such folder to write '{path.name}' into")
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        yield partial
        _sync(partial)
        disk.move_in(partial, path, overwrite=False)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        elif partial.exists():
            partial.unlink()


class Files:
    """Files of one folder that grow side by side.

    Args:
        folder: made if it isn't there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._open: dict = {}

    def append(self, name: str, content: bytes | memoryview | np.ndarray) -> None:
        """Writes at the end of a file."""
        if name not in self._open:
            self._open[name] = open(self._folder / name, "xb")  # noqa: SIM115
        self._open[name].write(raw(content) if isinstance(content, np.ndarray) else content)

    def __enter__(self) -> "Files":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()


def raw(array: np.ndarray) -> memoryview:
    """The bytes of an array."""
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def _sync(path: Path) -> None:
    for folder, _, files in os.walk(path):
        for name in files:
            _sync_file(os.path.join(folder, name))
        disk.sync_folder(Path(folder))
    if path.is_file():
        _sync_file(path)


def _sync_file(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
