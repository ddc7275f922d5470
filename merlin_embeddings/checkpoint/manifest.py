"""What a checkpoint's manifest says: plain data, checked when it is read."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import xxhash

from merlin_embeddings.checkpoint import checks
from merlin_embeddings.checkpoint.errors import BrokenCheckpoint
from merlin_embeddings.checkpoint.layout import DTYPES, FLOATS
from merlin_embeddings.checkpoint.names import check_inside, is_path

FORMAT = "merlin-embeddings checkpoint"
VERSION = 1
KINDS = ("row", "id")
_SEAL = b',\n "checksum": '


@dataclass(frozen=True)
class SlotInfo:
    """What an optimizer keeps for each row.

    Attributes:
        shape: of one row's value: () or (D,), or another.
        dtype: its name, as numpy has it.
        fill: the value of a row that was never updated.
    """

    shape: tuple[int, ...]
    dtype: str
    fill: float

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {"shape": list(self.shape), "dtype": self.dtype, "fill": self.fill}

    @classmethod
    def from_json(cls, data: Any, what: str) -> SlotInfo:
        """The slot that `to_json` made `data` of."""
        data = checks.mapping(data, what)
        checks.only(data, {"shape", "dtype", "fill"}, what)
        return cls(
            checks.lengths(data["shape"], f"{what}, shape"),
            _float_dtype(data["dtype"], what),
            checks.number(data["fill"], f"{what}, fill"),
        )


@dataclass(frozen=True)
class TableInfo:
    """What all shards of a table share.

    Attributes:
        name: the logical name, any text.
        rows: R, how many rows the table has; of a table whose rows belong to ids, its capacity.
        dim: D.
        dtype: of the vectors: "float32", "bfloat16", "float16" or "float64".
        key: what the keys are: "row", in [0, R), or "id", any int64.
        slots: by name.
        scores: their dtype, or None where there are none.
        full: whether all rows are here. False: those that changed since the base.
        ids: the id map's spec as plain data, or None.
        compression: the compression's spec as plain data, or None.
        virtual_shards: V, into how many virtual shards ids fall, or None.
        metadata: whatever else is to be kept; plain JSON data.
    """

    name: str
    rows: int
    dim: int
    dtype: str = "float32"
    key: str = "row"
    slots: Mapping[str, SlotInfo] = field(default_factory=dict)
    scores: str | None = None
    full: bool = True
    ids: Mapping[str, Any] | None = None
    compression: Mapping[str, Any] | None = None
    virtual_shards: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it, but for the name, which it stands under."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del data["name"]
        return {**data, "slots": {name: slot.to_json() for name, slot in self.slots.items()}}

    @classmethod
    def from_json(cls, name: str, data: Mapping[str, Any], what: str) -> TableInfo:
        """The table that `to_json` made `data` of."""
        needed = {f.name for f in dataclasses.fields(cls)} - {"name"}
        checks.only(data, needed, what)
        slots = checks.mapping(data["slots"], f"{what}, slots")
        return cls(
            name=name,
            rows=checks.integer(data["rows"], f"{what}, rows"),
            dim=checks.integer(data["dim"], f"{what}, dim", lowest=1),
            dtype=_float_dtype(data["dtype"], what),
            key=_one_of(data["key"], KINDS, f"{what}, key"),
            slots={
                slot: SlotInfo.from_json(value, f"{what}, slot '{slot}'")
                for slot, value in slots.items()
            },
            scores=None
            if data["scores"] is None
            else _one_of(data["scores"], tuple(DTYPES), f"{what}, scores"),
            full=checks.flag(data["full"], f"{what}, full"),
            ids=checks.optional(checks.mapping, data["ids"], f"{what}, ids"),
            compression=checks.optional(
                checks.mapping, data["compression"], f"{what}, compression"
            ),
            virtual_shards=checks.optional(
                checks.integer, data["virtual_shards"], f"{what}, virtual_shards"
            ),
            metadata=checks.mapping(data["metadata"], f"{what}, metadata"),
        )


@dataclass(frozen=True)
class FileInfo:
    """A safetensors file of the checkpoint.

    Attributes:
        file: where, from the checkpoint's folder; "/" between folders.
        bytes: how long it is.
        block: how many entries of a tensor's first axis have one checksum.
        checksums: by tensor, XXH3-64 of each block as 16 hexadecimal digits; under "", that of all
            that stands before the tensors.
    """

    file: str
    bytes: int
    block: int
    checksums: Mapping[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        sums = {name: list(values) for name, values in self.checksums.items()}
        return {"file": self.file, "bytes": self.bytes, "block": self.block, "checksums": sums}

    @classmethod
    def from_json(cls, data: Any, what: str) -> FileInfo:
        """The file that `to_json` made `data` of."""
        data = checks.mapping(data, what)
        checks.only(data, {"file", "bytes", "block", "checksums"}, what)
        file = check_inside(checks.text(data["file"], f"{what}, file"), what)
        sums = checks.mapping(data["checksums"], f"{what}, checksums of '{file}'")
        return cls(
            file=file,
            bytes=checks.integer(data["bytes"], f"{what}, bytes of '{file}'"),
            block=checks.integer(data["block"], f"{what}, block of '{file}'", lowest=1),
            checksums={
                name: tuple(
                    checks.text(one, f"{what}, checksums of '{file}'")
                    for one in checks.listing(values, f"{what}, checksums of '{file}'")
                )
                for name, values in sums.items()
            },
        )


@dataclass(frozen=True)
class ShardInfo:
    """A file with some rows of a table.

    Attributes:
        file: the file.
        count: N, how many rows.
        keys: (start, stop) where row i has key start + i; None: the file has a tensor of keys.
        erased: E, how many keys it says to be gone.
        virtual_shards: (first, stop), whose ids these are; None where the table has none.
        counts: of these virtual shards, how many rows each has; the rows stand in their order.
        state: a file with what else their id map keeps, or None.
        states_apart: whether each name in it is "<virtual shard>.<name>".
    """

    file: FileInfo
    count: int
    keys: tuple[int, int] | None = None
    erased: int = 0
    virtual_shards: tuple[int, int] | None = None
    counts: tuple[int, ...] | None = None
    state: FileInfo | None = None
    states_apart: bool = False

    def to_json(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {
            **self.file.to_json(),
            "count": self.count,
            "keys": _listed(self.keys),
            "erased": self.erased,
            "virtual_shards": _listed(self.virtual_shards),
            "counts": _listed(self.counts),
            "state": None if self.state is None else self.state.to_json(),
            "states_apart": self.states_apart,
        }

    @classmethod
    def from_json(cls, data: Any, what: str) -> ShardInfo:
        """The shard that `to_json` made `data` of."""
        data = checks.mapping(data, what)
        file = FileInfo.from_json(data, what)
        what = f"{what}, '{file.file}'"
        needed = {"count", "keys", "erased", "virtual_shards", "counts", "state", "states_apart"}
        checks.only(data, needed, what)
        count = checks.integer(data["count"], f"{what}, count")
        keys = checks.optional(checks.span, data["keys"], f"{what}, keys")
        if keys is not None and keys[1] - keys[0] != count:
            raise BrokenCheckpoint(f"{what}: keys {list(keys)} aren't those of {count} rows")
        virtual = checks.optional(checks.span, data["virtual_shards"], f"{what}, virtual_shards")
        counts = checks.optional(checks.lengths, data["counts"], f"{what}, counts")
        if (virtual is None) != (counts is None):
            raise BrokenCheckpoint(f"{what} needs both virtual_shards and counts, or neither")
        if virtual is not None and (len(counts), sum(counts)) != (virtual[1] - virtual[0], count):
            raise BrokenCheckpoint(
                f"{what}: counts must be one for each virtual shard of {list(virtual)}, "
                f"{count} in all"
            )
        return cls(
            file=file,
            count=count,
            keys=keys,
            erased=checks.integer(data["erased"], f"{what}, erased"),
            virtual_shards=virtual,
            counts=counts,
            state=checks.optional(FileInfo.from_json, data["state"], f"{what}, state"),
            states_apart=checks.flag(data["states_apart"], f"{what}, states_apart"),
        )


@dataclass(frozen=True)
class Table:
    """A table of a checkpoint: what it is, and where its rows are."""

    info: TableInfo
    shards: tuple[ShardInfo, ...]


@dataclass(frozen=True)
class Base:
    """The checkpoint that an increment goes on from.

    Attributes:
        path: where it is, from the increment's folder.
        id: that checkpoint's.
    """

    path: str
    id: str


@dataclass(frozen=True)
class Manifest:
    """All that `manifest.json` says.

    Attributes:
        id: of this checkpoint: no other one has it.
        tables: by name.
        groups: files of named arrays, by name.
        step: how many training steps had been made, or None.
        metadata: whatever else is to be kept; plain JSON data.
        packages: versions of what wrote it.
        base: of an increment; None: all is here.
    """

    id: str
    tables: Mapping[str, Table]
    groups: Mapping[str, FileInfo]
    step: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    base: Base | None = None

    def to_bytes(self) -> bytes:
        """The file's content."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "step": self.step,
            "base": None if self.base is None else dataclasses.asdict(self.base),
            "packages": dict(self.packages),
            "metadata": dict(self.metadata),
            **contents_to_json(self.tables, self.groups),
        }
        text = json.dumps(data, indent=1, allow_nan=False)
        return sealed(text.removesuffix("\n}").encode())

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> Manifest:
        """The manifest in a file's content.

        Args:
            content: the file's.
            what: what errors call the file.

        Raises:
            BrokenCheckpoint: it isn't one, or a newer version's.
        """
        data = checks.parse(content, what)
        if data.get("format") != FORMAT:
            raise BrokenCheckpoint(f"{what} is no manifest of a checkpoint (no format {FORMAT!r})")
        body = content[: max(content.rfind(_SEAL), 0)]
        if sealed(body) != content:
            raise BrokenCheckpoint(
                f"{what}: its checksum isn't that of what is before it; the file was changed or "
                "broken after it was written"
            )
        version = checks.integer(data.get("version"), f"{what}, version", lowest=1)
        if version > VERSION:
            raise BrokenCheckpoint(
                f"{what} is of version {version} of the format; this package reads up to "
                f"{VERSION}. Install a newer merlin-embeddings."
            )
        needed = {"id", "step", "base", "packages", "metadata", "tables", "groups"}
        checks.only(data, needed, what)
        tables, groups = contents_from_json(data, what)
        packages = checks.mapping(data["packages"], f"{what}, packages")
        return cls(
            id=checks.text(data["id"], f"{what}, id"),
            tables=tables,
            groups=groups,
            step=checks.optional(checks.integer, data["step"], f"{what}, step"),
            metadata=checks.mapping(data["metadata"], f"{what}, metadata"),
            packages={
                name: checks.text(value, f"{what}, packages") for name, value in packages.items()
            },
            base=checks.optional(_base, data["base"], f"{what}, base"),
        )


def sealed(body: bytes) -> bytes:
    """A JSON object, given without its end, with a checksum of what was given as its last value."""
    sum_of = xxhash.xxh3_64_hexdigest(body).encode()
    return body + _SEAL + b'"' + sum_of + b'"\n}\n'


def contents_to_json(tables: Mapping[str, Table], groups: Mapping[str, FileInfo]) -> dict[str, Any]:
    """Tables and groups as a manifest, or a part of one, has them."""
    return {
        "tables": {
            name: {
                **table.info.to_json(),
                "shards": [shard.to_json() for shard in table.shards],
            }
            for name, table in tables.items()
        },
        "groups": {name: file.to_json() for name, file in groups.items()},
    }


def contents_from_json(
    data: Mapping[str, Any], what: str
) -> tuple[dict[str, Table], dict[str, FileInfo]]:
    """The tables and groups that `contents_to_json` made `data` of."""
    tables = {}
    for name, value in checks.mapping(data["tables"], f"{what}, tables").items():
        named = f"{what}, table '{name}'"
        value = checks.mapping(value, named)
        info = TableInfo.from_json(name, value, named)
        shards = checks.listing(value.get("shards"), f"{named}, shards")
        found = [ShardInfo.from_json(shard, named) for shard in shards]
        tables[name] = Table(info, tuple(sorted(found, key=_begin)))
    groups = {
        name: FileInfo.from_json(value, f"{what}, group '{name}'")
        for name, value in checks.mapping(data["groups"], f"{what}, groups").items()
    }
    return tables, groups


def _begin(shard: ShardInfo) -> int:
    """Where a shard stands among others: by its rows, or its virtual shards."""
    begins = shard.keys or shard.virtual_shards
    return 0 if begins is None else begins[0]


def _base(data: Any, what: str) -> Base:
    data = checks.mapping(data, what)
    checks.only(data, {"path", "id"}, what)
    path = checks.text(data["path"], f"{what}, path")
    if not path or path.startswith("/") or not is_path(path):
        raise BrokenCheckpoint(f"{what}, path must lead from this folder to it, not {path[:80]!r}")
    return Base(path, checks.text(data["id"], f"{what}, id"))


def _listed(values: tuple[int, ...] | None) -> list[int] | None:
    return None if values is None else list(values)


def _one_of(value: Any, known: tuple[str, ...], what: str) -> str:
    if value not in known:
        raise BrokenCheckpoint(f"{what} must be one of {', '.join(known)}, not {str(value)[:80]!r}")
    return str(value)


def _float_dtype(value: Any, what: str) -> str:
    return _one_of(value, FLOATS, f"{what}, dtype")
