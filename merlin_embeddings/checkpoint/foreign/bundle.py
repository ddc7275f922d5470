"""TensorFlow's checkpoint files: an index of tensors by name, and files of their bytes.

`<prefix>.index` is a sorted table of strings as LevelDB has them: blocks of entries whose keys
share their beginnings, then a block of blocks, then a footer of 48 bytes. The entry "" tells how
many files there are; that of a tensor, a BundleEntryProto: dtype, shape, file, offset, size and
checksum. The files are `<prefix>.data-00000-of-00001` and so on. All checksums are CRC-32C, masked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c
import numpy as np

from merlin_embeddings.checkpoint.foreign import varints
from merlin_embeddings.checkpoint.foreign.raw import Column, file_size

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_LARGEST_INDEX = 1 << 30
_BLOCK = 1 << 20
# TensorFlow's numbers of dtypes.
DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    7: "string",
    9: "int64",
    14: "bfloat16",
    19: "float16",
}
_CODES = {name: code for code, name in DTYPES.items()}


@dataclass
class Entry:
    """Where a tensor is.

    Attributes:
        dtype: its name, or TensorFlow's number of it.
        shape: of the tensor.
        file: in which of the files.
        offset: of its first byte.
        size: in bytes.
        checksum: of its bytes, unmasked.
        sliced: whether it was written in parts.
    """

    dtype: str = "0"
    shape: tuple[int, ...] = ()
    file: int = 0
    offset: int = 0
    size: int = 0
    checksum: int = 0
    sliced: bool = False


@dataclass
class Bundle:
    """A checkpoint's index.

    Attributes:
        prefix: the path without ".index".
        files: how many files there are.
        entries: the tensors by name.
    """

    prefix: Path
    files: int = 1
    entries: dict[str, Entry] = field(default_factory=dict)

    def column(self, name: str, dtype: np.dtype) -> Column:
        """The rows of a tensor [N, ...]; its checksum has been found right.

        Raises:
            ValueError: it isn't what was written.
        """
        entry = self.entries[name]
        path = self.prefix.with_name(f"{self.prefix.name}.{data_file(entry.file, self.files)}")
        if entry.sliced:
            raise ValueError(f"{path}: '{name}' was written in slices; save it unpartitioned")
        file_size(path)
        rows = entry.shape[0] if entry.shape else 1
        column = Column(path, entry.offset, rows, dtype, entry.shape[1:])
        if entry.size != dtype.itemsize * int(np.prod(entry.shape, dtype=object)):
            raise ValueError(f"{path}: '{name}' has {entry.size} bytes for shape {entry.shape}")
        if checksum(path, entry.offset, entry.size) != entry.checksum:
            raise ValueError(f"{path}: '{name}' isn't what was written: its checksum is wrong")
        return column

    def string(self, name: str) -> bytes:
        """A tensor of one string: its length, a checksum of that, and the string."""
        entry = self.entries[name]
        path = self.prefix.with_name(f"{self.prefix.name}.{data_file(entry.file, self.files)}")
        raw = Column(path, entry.offset, entry.size, np.dtype(np.uint8)).read(0, entry.size)
        size, at = varints.varint(raw.tobytes(), 0)
        if at + 4 + size != entry.size:
            raise ValueError(f"{path}: '{name}' is no string")
        return raw[at + 4 :].tobytes()


def data_file(number: int, files: int) -> str:
    """What a file's name ends in."""
    return f"data-{number:05d}-of-{files:05d}"


def read(prefix: Path) -> Bundle:
    """The index of a checkpoint.

    Raises:
        ValueError: it is damaged.
    """
    path = Path(f"{prefix}.index")
    size = file_size(path)
    if not _FOOTER <= size <= _LARGEST_INDEX:
        raise ValueError(f"{path}: no index of a checkpoint has {size} bytes")
    content = path.read_bytes()
    try:
        return _bundle(prefix, content)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{path}: is no index of a checkpoint, or damaged: {error}") from None


def _bundle(prefix: Path, content: bytes) -> Bundle:
    footer = content[-_FOOTER:]
    if int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise ValueError("its last bytes are other ones")
    _, _, at = _handle(footer, 0)
    begin, size, _ = _handle(footer, at)
    found = Bundle(prefix)
    for _, handle in _entries(_block(content, begin, size)):
        start, length, _ = _handle(handle, 0)
        for key, value in _entries(_block(content, start, length)):
            if not key:
                found.files = _header(value)
            elif not key.startswith(b"\0"):  # of slices
                found.entries[key.decode()] = _entry(value)
    for name, entry in found.entries.items():
        if entry.file >= found.files:
            raise ValueError(f"'{name}' is in file {entry.file} of {found.files}")
    return found


def _handle(content: bytes, at: int) -> tuple[int, int, int]:
    begin, at = varints.varint(content, at)
    size, at = varints.varint(content, at)
    return begin, size, at


def _block(content: bytes, begin: int, size: int) -> bytes:
    if begin + size + 5 > len(content):
        raise ValueError("a block goes beyond its end")
    told = int.from_bytes(content[begin + size + 1 : begin + size + 5], "little")
    if _mask(google_crc32c.value(content[begin : begin + size + 1])) != told:
        raise ValueError("a block's checksum is wrong")
    if content[begin + size]:
        raise ValueError("a block is compressed, which TensorFlow doesn't do")
    return content[begin : begin + size]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise ValueError("a block is shorter than its list of places")
    at, key = 0, b""
    while at < end:
        shared, at = varints.varint(block, at)
        own, at = varints.varint(block, at)
        size, at = varints.varint(block, at)
        if shared > len(key) or at + own + size > end:
            raise ValueError("an entry goes beyond its block")
        key = key[:shared] + block[at : at + own]
        at += own
        yield key, block[at : at + size]
        at += size


def _header(message: bytes) -> int:
    told = dict(varints.fields(message))
    files, order = told.get(1, 0), told.get(2, 0)
    if not isinstance(files, int) or not 1 <= files <= 100_000:
        raise ValueError(f"it says that there are {files!r} files")
    if order != 0:
        raise ValueError("it was written on a machine with another order of bytes")
    return files


def _entry(message: bytes) -> Entry:
    entry = Entry()
    for number, value in varints.fields(message):
        if number == 2:
            entry.shape = _shape(_bytes(value))
        elif number == 7:
            entry.sliced = True
        elif not isinstance(value, int):
            continue
        elif number == 1:
            entry.dtype = DTYPES.get(value, str(value))
        elif number == 3:
            entry.file = value
        elif number == 4:
            entry.offset = value
        elif number == 5:
            entry.size = value
        elif number == 6:
            entry.checksum = _unmask(value)
    return entry


def _shape(message: bytes) -> tuple[int, ...]:
    sizes = []
    for number, value in varints.fields(message):
        if number == 2:
            size = dict(varints.fields(_bytes(value))).get(1, 0)
            if not isinstance(size, int) or size >= 2**62:
                raise ValueError("an axis without a size")
            sizes.append(size)
    return tuple(sizes)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value


def checksum(path: str | os.PathLike, begin: int, size: int) -> int:
    """CRC-32C of some bytes of a file."""
    with open(path, "rb") as file:
        file.seek(begin)
        value, left = 0, size
        while left and (block := file.read(min(left, _BLOCK))):
            value, left = google_crc32c.extend(value, block), left - len(block)
    return value


# Writing


def index(entries: Mapping[str, Entry]) -> bytes:
    """The index file of tensors in one data file."""
    found = {b"": varints.field(1, 1) + varints.field(3, varints.field(1, 1))}
    found |= {name.encode(): _entry_message(entry) for name, entry in entries.items()}
    blocks, handles, current = b"", {}, {}
    for key in sorted(found):
        current[key] = found[key]
        if sum(map(len, current.values())) > 1 << 18:
            blocks, handles[key] = _append(blocks, current)
            current = {}
    if current:
        blocks, handles[max(current)] = _append(blocks, current)
    blocks, meta = _append(blocks, {})
    blocks, top = _append(blocks, handles)
    return blocks + (meta + top).ljust(_FOOTER - 8, b"\0") + _MAGIC.to_bytes(8, "little")


def _append(blocks: bytes, entries: Mapping[bytes, bytes]) -> tuple[bytes, bytes]:
    """Blocks with one more, every key of it whole; and where that is."""
    block, places = b"", []
    for key, value in entries.items():
        places.append(len(block).to_bytes(4, "little"))
        block += b"\0" + varints.put(len(key)) + varints.put(len(value)) + key + value
    block += b"".join(places or [bytes(4)]) + max(len(places), 1).to_bytes(4, "little")
    told = _mask(google_crc32c.value(block + b"\0")).to_bytes(4, "little")
    handle = varints.put(len(blocks)) + varints.put(len(block))
    return blocks + block + b"\0" + told, handle


def _entry_message(entry: Entry) -> bytes:
    shape = b"".join(varints.field(2, varints.field(1, size)) for size in entry.shape)
    return (
        varints.field(1, _CODES[entry.dtype])
        + varints.field(2, shape)
        + varints.field(4, entry.offset)
        + varints.field(5, entry.size)
        + varints.fixed32(6, _mask(entry.checksum))
    )


def string_tensor(text: bytes) -> tuple[bytes, int]:
    """The bytes of a tensor that is one string, and their checksum.

    The checksum is over the length as 4 bytes (8 where it has more), its own checksum as stands in
    the file, and the string.
    """
    wide = len(text).to_bytes(4 if len(text) < 1 << 32 else 8, "little")
    of_length = _mask(google_crc32c.value(wide)).to_bytes(4, "little")
    told = google_crc32c.value(wide + of_length + text)
    return varints.put(len(text)) + of_length + text, told


def _mask(value: int) -> int:
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _unmask(value: int) -> int:
    turned = (value - 0xA282EAD8) & 0xFFFFFFFF
    return (turned >> 17 | turned << 15) & 0xFFFFFFFF
