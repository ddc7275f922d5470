"""Named arrays in one file, read one by one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from merlin_embeddings.checkpoint.files import FileReader, open_inside
from merlin_embeddings.checkpoint.manifest import FileInfo


class Arrays(Mapping[str, np.ndarray]):
    """A mapping that opens its file when an array is asked for.

    Args:
        folder: of the checkpoint.
        file: what the manifest says of the file.
        prefix: of the names of the arrays meant; it isn't part of the names here.
    """

    def __init__(self, folder: Path, file: FileInfo, prefix: str = "") -> None:
        self._folder, self._info, self._prefix = folder, file, prefix

    def under(self, prefix: str) -> Arrays:
        """Those whose names begin so, without that."""
        return Arrays(self._folder, self._info, self._prefix + prefix)

    def require_there(self) -> None:
        """Checks that the file is there, and how long it is.

        Raises:
            FileNotFoundError: it isn't.
            BrokenCheckpoint: it is longer or shorter, or no file of the checkpoint.
        """
        os.close(open_inside(self._folder, self._info))

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self:
            raise KeyError(f"{self._folder / self._info.file} has no '{self._prefix}{name}'")
        with FileReader(self._folder, self._info) as file:
            return file.read(self._prefix + name)

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def __iter__(self) -> Iterator[str]:
        for name in self._info.checksums:
            if name and name.startswith(self._prefix):
                yield name.removeprefix(self._prefix)

    def __len__(self) -> int:
        return sum(1 for _ in self)
