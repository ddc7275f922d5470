"""One safetensors file, written and read in parts, with a checksum for each block."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from merlin_embeddings.checkpoint import disk, layout
from merlin_embeddings.checkpoint.errors import BrokenCheckpoint
from merlin_embeddings.checkpoint.manifest import FileInfo

HEADER = ""
_ALIGNMENT = 64


class FileWriter:
    """Writes a new file's tensors side by side, each from its beginning to its end.

    Args:
        folder: of the checkpoint.
        file: the path from there.
        specs: (dtype, shape) by name.
        block: how many entries have one checksum.

    Raises:
        FileExistsError: there is such a file.
    """

    def __init__(
        self,
        folder: Path,
        file: str,
        specs: Mapping[str, tuple[str, tuple[int, ...]]],
        block: int,
    ) -> None:
        self._file, self._block = file, block
        self._path = folder / file
        self._layout = layout.lay_out(specs)
        self._at = {name: tensor.offset for name, tensor in self._layout.tensors.items()}
        self._sums = {
            name: _Sums(tensor.width * block) for name, tensor in self._layout.tensors.items()
        }
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o666)
        try:
            disk.write_all(self._descriptor, self._layout.header, 0)
        except BaseException:
            self.close()
            raise

    def append(self, name: str, values: np.ndarray) -> None:
        """Writes the next entries of a tensor.

        Args:
            name: the tensor's.
            values: of its dtype.

        Raises:
            ValueError: it would be longer than was said.
        """
        tensor, at = self._layout.tensors[name], self._at[name]
        dtype = layout.numpy_dtype(tensor.dtype)
        raw = np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8)
        if at + len(raw) > tensor.offset + tensor.bytes:
            raise ValueError(f"'{self._file}': tensor '{name}' gets more than its {tensor.shape}")
        self._sums[name].add(raw)
        try:
            disk.write_all(self._descriptor, raw.data, at)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        self._at[name] = at + len(raw)

    def finish(self) -> FileInfo:
        """Has the file reach the disk.

        Raises:
            ValueError: a tensor has got less than was said.
        """
        for name, tensor in self._layout.tensors.items():
            got = self._at[name] - tensor.offset
            if got != tensor.bytes:
                raise ValueError(
                    f"'{self._file}': tensor '{name}' is {list(tensor.shape)}, which takes "
                    f"{tensor.bytes} bytes; it got {got}"
                )
        os.fsync(self._descriptor)
        self.close()
        header = xxhash.xxh3_64_hexdigest(self._layout.header)
        sums = {name: sums.finish() for name, sums in self._sums.items()}
        return FileInfo(self._file, self._layout.bytes, self._block, {HEADER: (header,), **sums})

    def close(self) -> None:
        """Lets the file go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class FileReader:
    """Reads parts of a file's tensors, and checks what it reads.

    Args:
        folder: of the checkpoint.
        info: what the manifest says of the file.
        specs: what tensors it must have, (dtype, shape) by name; None: any.

    Raises:
        FileNotFoundError: it isn't there.
        BrokenCheckpoint: it isn't what the manifest says.
    """

    def __init__(
        self,
        folder: Path,
        info: FileInfo,
        specs: Mapping[str, tuple[str, tuple[int, ...]]] | None = None,
    ) -> None:
        self.info = info
        self.path = folder / info.file
        self._descriptor = open_inside(folder, info)
        try:
            self.tensors = self._read_header()
            if specs is not None:
                self._require(specs)
            self._require_sums()
        except BaseException:
            self.close()
            raise

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Entries `start` to `stop` of a tensor; the blocks that they are in are checked.

        Raises:
            BrokenCheckpoint: a block isn't what was written.
        """
        tensor = self.tensors[name]
        stop = tensor.entries if stop is None else stop
        block = self.info.block
        first, last = start // block * block, min(-(-stop // block) * block, tensor.entries)
        raw = _aligned(max(last - first, 0) * tensor.width)
        self._fill(raw, tensor.offset + first * tensor.width)
        self._check(name, raw, first, block * tensor.width)
        values = raw.view(layout.numpy_dtype(tensor.dtype))
        if not tensor.shape:
            return values.reshape(())
        values = values.reshape(max(last - first, 0), *tensor.shape[1:])
        return values[start - first : stop - first]

    def take(self, name: str, entries: np.ndarray) -> np.ndarray:
        """Some entries of a tensor, [K] int64 which ascend; only their blocks are read."""
        tensor, blocks = self.tensors[name], entries // self.info.block
        found = np.empty((len(entries), *tensor.shape[1:]), layout.numpy_dtype(tensor.dtype))
        # Neighbouring blocks are read at once.
        ends = [*(np.flatnonzero(np.diff(blocks) > 1) + 1), len(entries)]
        at = 0
        for end in ends if len(entries) else ():
            some = entries[at:end]
            first = int(some[0])
            found[at:end] = self.read(name, first, int(some[-1]) + 1)[some - first]
            at = end
        return found

    def close(self) -> None:
        """Lets the file go."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> FileReader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _read_header(self) -> dict[str, layout.Tensor]:
        start = np.empty(min(8, self.info.bytes), np.uint8)
        self._fill(start, 0)
        length = int.from_bytes(start.tobytes(), "little")
        if len(start) < 8 or length > min(self.info.bytes - 8, layout.LONGEST_HEADER):
            raise BrokenCheckpoint(
                f"{self.path}: a header of {length} bytes in a file of {self.info.bytes}"
            )
        header = np.empty(8 + length, np.uint8)
        self._fill(header, 0)
        self._check(HEADER, header, 0, len(header))
        return layout.parse_header(header.tobytes(), self.info.bytes, str(self.path))

    def _require(self, specs: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        found = {name: (tensor.dtype, tensor.shape) for name, tensor in self.tensors.items()}
        if found == dict(specs):
            return
        for name in sorted({*found, *specs}):
            if found.get(name) != specs.get(name):
                raise BrokenCheckpoint(
                    f"{self.path}: tensor '{name[:80]}' is {_told(found.get(name))}, by the "
                    f"manifest it is {_told(specs.get(name))}"
                )

    def _require_sums(self) -> None:
        blocks = {
            name: -(-t.entries // self.info.block) if t.width else 0
            for name, t in self.tensors.items()
        }
        told = {name: len(sums) for name, sums in self.info.checksums.items()}
        if told != {HEADER: 1, **blocks}:
            raise BrokenCheckpoint(f"{self.path}: its tensors aren't those of the checksums")

    def _fill(self, raw: np.ndarray, offset: int) -> None:
        view = raw.data
        while len(view):
            got = os.preadv(self._descriptor, [view], offset)
            if not got:
                raise BrokenCheckpoint(f"{self.path} was cut to {offset} bytes while it was read")
            view, offset = view[got:], offset + got

    def _check(self, name: str, raw: np.ndarray, first: int, size: int) -> None:
        """`size`: how many bytes a block of the tensor has; `raw` begins at entry `first`."""
        sums = self.info.checksums.get(name, ())
        number = first // self.info.block
        for at in range(0, len(raw), max(size, 1)):
            found = xxhash.xxh3_64_hexdigest(raw[at : at + size].data)
            if number >= len(sums) or sums[number] != found:
                what = f"tensor '{name}', block {number}" if name else "its header"
                raise BrokenCheckpoint(
                    f"{self.path}, {what}: the checksum is {found}, not "
                    f"{sums[number] if number < len(sums) else 'given'}; the file was changed or "
                    "broken after it was written"
                )
            number += 1


def _aligned(length: int) -> np.ndarray:
    """[length] uint8 where TensorFlow takes arrays as they are: it copies those that lie askew."""
    raw = np.empty(length + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + length]


class _Sums:
    """The checksums of a tensor's blocks of `size` bytes, as it comes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: list[str] = []
        self._open: Any = None
        self._filled = 0

    def add(self, raw: np.ndarray) -> None:
        at = 0
        while at < len(raw):
            part = raw[at : at + self._size - self._filled]
            at += len(part)
            if len(part) == self._size:
                self._found.append(xxhash.xxh3_64_hexdigest(part.data))
                continue
            if self._open is None:
                self._open = xxhash.xxh3_64()
            self._open.update(part.data)
            self._filled += len(part)
            if self._filled == self._size:
                self._end()

    def finish(self) -> tuple[str, ...]:
        if self._filled:
            self._end()
        return tuple(self._found)

    def _end(self) -> None:
        self._found.append(self._open.hexdigest())
        self._open, self._filled = None, 0


def open_inside(folder: Path, info: FileInfo) -> int:
    """A descriptor to read a file of a checkpoint, which is of the length that was said.

    Raises:
        FileNotFoundError: it isn't there.
        BrokenCheckpoint: it is no file, is reached by a link, or is longer or shorter.
    """
    path = folder / info.file
    for parent in Path(info.file).parents:
        if (folder / parent).is_symlink() and folder != folder / parent:
            raise BrokenCheckpoint(f"{path} is reached by a link")
    try:
        descriptor = open_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing; the manifest names it") from None
    size = os.fstat(descriptor).st_size
    if size != info.bytes:
        os.close(descriptor)
        raise BrokenCheckpoint(f"{path} has {size} bytes, the manifest says {info.bytes}")
    return descriptor


def open_file(path: Path) -> int:
    """A descriptor to read what is a file itself: no link, no device, nothing that waits.

    Raises:
        FileNotFoundError: it isn't there.
        BrokenCheckpoint: it is something else, or can't be read.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path} is missing") from None
    except OSError as error:
        raise BrokenCheckpoint(f"{path} can't be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BrokenCheckpoint(f"{path} is no file")
    return descriptor


def _told(spec: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if spec is None else f"{spec[0]} {list(spec[1])}"
