"""Members of zip files that are stored as they are, read where they lie."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BLOCK = 1 << 20


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip file.

    Raises:
        ValueError: it isn't one that can be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OverflowError) as error:
        raise ValueError(f"{path}: is no zip file that can be read: {error}") from None


def stored(path: Path, archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin in the file; its checksum has been found right.

    Raises:
        ValueError: they are compressed, go beyond the file, or aren't what was written.
    """
    if item.compress_type != zipfile.ZIP_STORED or item.flag_bits & 1:
        raise ValueError(
            f"{path}: '{item.filename}' is compressed; save it uncompressed, as its framework does"
        )
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        file.seek(item.header_offset)
        head = file.read(30)
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            raise ValueError(f"{path}: '{item.filename}' isn't where the zip's directory says")
        name, extra = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
        begin = item.header_offset + 30 + name + extra
        if begin + item.file_size > size:
            raise ValueError(f"{path}: '{item.filename}' goes beyond the file's {size} bytes")
        file.seek(begin)
        left, found = item.file_size, 0
        while left:
            block = file.read(min(left, _BLOCK))
            if not block:
                raise ValueError(f"{path}: was cut short while it was read")
            found, left = zlib.crc32(block, found), left - len(block)
    if found != item.CRC:
        raise ValueError(f"{path}: '{item.filename}' isn't what was written: its checksum is wrong")
    return begin


class Window(io.RawIOBase):
    """Some bytes of a file, as a file.

    Args:
        path: of the file.
        begin: of the first of them.
        size: how many.
    """

    def __init__(self, path: Path, begin: int, size: int) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        self._begin, self._size, self._at = begin, size, 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Reads at most as much as fits."""
        wanted = max(min(len(buffer), self._size - self._at), 0)
        self._file.seek(self._begin + self._at)
        got = self._file.readinto(memoryview(buffer)[:wanted])
        self._at += got
        return got

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Goes to a place, counted as of any file."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Where it is."""
        return self._at

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        super().close()
