"""Which tensors a shard of a table has."""

from __future__ import annotations

from merlin_embeddings.checkpoint.layout import numpy_dtype
from merlin_embeddings.checkpoint.manifest import ShardInfo, TableInfo

Specs = dict[str, tuple[str, tuple[int, ...]]]

# About how long a block of the vectors is.
_BLOCK = 1 << 20


def specs_of(info: TableInfo, shard: ShardInfo) -> Specs:
    """Dtype and shape of the tensors in a shard's file."""
    return specs(info, shard.count, shard.keys is None, shard.erased)


def specs(info: TableInfo, count: int, has_keys: bool, erased: int) -> Specs:
    """Dtype and shape of the tensors in the file of so many rows."""
    found: Specs = {}
    if has_keys:
        found["keys"] = ("int64", (count,))
    if info.scores is not None:
        found["scores"] = (info.scores, (count,))
    found["vectors"] = (info.dtype, (count, info.dim))
    for name, slot in info.slots.items():
        found[f"slot.{name}"] = (slot.dtype, (count, *slot.shape))
    if erased:
        found["erased"] = ("int64", (erased,))
    return found


def row_bytes(info: TableInfo) -> int:
    """How many bytes a row takes, with slots and key."""
    return sum(_width(spec) for spec in specs(info, 1, True, 0).values())


def block_of(info: TableInfo) -> int:
    """How many rows have one checksum: a power of two, about a MiB of the widest tensor."""
    widest = max(_width(spec) for spec in specs(info, 1, True, 0).values())
    return 1 << max(_BLOCK // widest, 1).bit_length() - 1


def _width(spec: tuple[str, tuple[int, ...]]) -> int:
    dtype, shape = spec
    width = numpy_dtype(dtype).itemsize
    for length in shape[1:]:
        width *= length
    return width
