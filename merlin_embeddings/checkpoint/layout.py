"""The layout of a safetensors file: which tensor stands where.

8 bytes, little-endian: the length of the header. The header, JSON: for each tensor its dtype,
shape, and where it begins and ends, counted from the header's end. The tensors, in row-major order,
little-endian, one behind the other (https://github.com/huggingface/safetensors).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from merlin_embeddings.checkpoint import checks
from merlin_embeddings.checkpoint.errors import BrokenCheckpoint

# numpy's name of a dtype, safetensors' name of it.
DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
FLOATS = ("float32", "bfloat16", "float16", "float64")
_NAMES = {there: here for here, there in DTYPES.items()}
# What the format allows.
LONGEST_HEADER = 100_000_000
_MOST_AXES = 32
_MOST_ENTRIES = 2**59


class Tensor(NamedTuple):
    """A tensor of a file.

    Attributes:
        dtype: its name, as numpy has it.
        shape: [N, ...], or [].
        offset: where it begins in the file.
    """

    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def width(self) -> int:
        """How many bytes one entry of the first axis has."""
        return math.prod(self.shape[1:]) * numpy_dtype(self.dtype).itemsize

    @property
    def entries(self) -> int:
        """N; a scalar counts as one."""
        return self.shape[0] if self.shape else 1

    @property
    def bytes(self) -> int:
        """How long it is."""
        return self.entries * self.width


def numpy_dtype(name: str) -> np.dtype:
    """The dtype of a name; TensorFlow's bfloat16, as numpy has none."""
    if name == "bfloat16":
        return np.dtype(tf.bfloat16.as_numpy_dtype)
    return np.dtype(name).newbyteorder("<")


def dtype_name(dtype: Any, what: str) -> str:
    """The name of a dtype that a file can have.

    Raises:
        TypeError: it can't.
    """
    name = np.dtype(dtype).name
    if name not in DTYPES:
        raise TypeError(f"{what}: a file can't hold {name}; it can hold {', '.join(DTYPES)}")
    return name


class Layout(NamedTuple):
    """A file's header, and where its tensors are.

    Attributes:
        header: all bytes before the tensors.
        tensors: by name.
        bytes: how long the file is.
    """

    header: bytes
    tensors: dict[str, Tensor]
    bytes: int


def lay_out(specs: Mapping[str, tuple[str, tuple[int, ...]]]) -> Layout:
    """The layout of a file of tensors (dtype, shape) by name.

    Wide dtypes come first, so that every tensor is aligned.
    """
    ordered = sorted(specs, key=lambda name: -numpy_dtype(specs[name][0]).itemsize)
    at = 0
    entries: dict[str, Any] = {}
    begins = {}
    for name in ordered:
        dtype, shape = specs[name]
        end = at + Tensor(dtype, shape, 0).bytes
        entries[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [at, end]}
        begins[name], at = at, end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    tensors = {name: Tensor(*specs[name], len(header) + begins[name]) for name in ordered}
    return Layout(header, tensors, len(header) + at)


def parse_header(header: bytes, length: int, what: str) -> dict[str, Tensor]:
    """The tensors that a header tells of.

    Args:
        header: all bytes before the tensors.
        length: of the file.
        what: what errors call the file.

    Raises:
        BrokenCheckpoint: the header isn't one, or tensors overlap, leave gaps, or pass the end.
    """
    tensors, at = {}, len(header)
    found = []
    for name, entry in checks.parse(header[8:], f"{what}, its header").items():
        if name == "__metadata__":
            continue
        named = f"{what}, tensor '{name[:80]}'"
        entry = checks.mapping(entry, named)
        checks.only(entry, {"dtype", "shape", "data_offsets"}, named)
        dtype = entry["dtype"]
        if not isinstance(dtype, str) or dtype not in _NAMES:
            raise BrokenCheckpoint(f"{named} has the unknown dtype {str(dtype)[:80]!r}")
        shape = checks.lengths(entry["shape"], f"{named}, shape")
        begin, end = checks.span(entry["data_offsets"], f"{named}, data_offsets")
        # numpy can't have others, not even where a length is 0.
        if len(shape) > _MOST_AXES or math.prod(max(n, 1) for n in shape) > _MOST_ENTRIES:
            raise BrokenCheckpoint(f"{named} has the shape {str(list(shape))[:80]}, too large")
        tensor = Tensor(_NAMES[dtype], shape, len(header) + begin)
        if tensor.bytes != end - begin:
            raise BrokenCheckpoint(
                f"{named}: {DTYPES[tensor.dtype]} {list(shape)} takes {tensor.bytes} bytes, not "
                f"the {end - begin} of its data_offsets"
            )
        found.append((begin, end, name))
        tensors[name] = tensor
    for begin, end, name in sorted(found):
        if len(header) + begin != at:
            raise BrokenCheckpoint(
                f"{what}, tensor '{name[:80]}' begins at {begin}, where the one before it ends at "
                f"{at - len(header)}"
            )
        at = len(header) + end
    if at != length:
        raise BrokenCheckpoint(f"{what} has {length} bytes, its header tells of {at}")
    return tensors
