"""A checkpoint at a glance, and the differences of two: plain data that rich shows as tables."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from merlin_embeddings.checkpoint import foreign
from merlin_embeddings.checkpoint.comparison import Diff
from merlin_embeddings.checkpoint.reader import Checkpoint
from merlin_embeddings.checkpoint.shards import row_bytes
from merlin_embeddings.tables import Entries

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Norms:
    """The lengths (L2) of vectors.

    Attributes:
        least: the smallest.
        mean: the mean.
        most: the largest.
        bad: how many vectors have NaN or infinity, which are left out of the rest.
    """

    least: float
    mean: float
    most: float
    bad: int = 0


@dataclass(frozen=True)
class TableSummary:
    """A table.

    Attributes:
        name: of the table.
        keys: what they are: "row" or "id".
        rows: R, of a table of ids its capacity.
        used: N, how many have something.
        dim: D.
        dtype: of the vectors.
        slots: the shapes of slots after [N], by name.
        ids: the id map's name, with what it is made of; "" where there is none.
        compression: the same of the compression.
        files: how many, those of bases not among them; None for other formats.
        bytes: of keys, vectors, slots and scores.
        norms: of the vectors, or None.
    """

    name: str
    keys: str
    rows: int
    used: int
    dim: int
    dtype: str
    slots: Mapping[str, tuple[int, ...]]
    ids: str
    compression: str
    files: int | None
    bytes: int
    norms: Norms | None


@dataclass(frozen=True)
class Summary:
    """What is in a checkpoint, or in files of another format.

    Attributes:
        path: where.
        format: its name.
        tables: the tables.
        step: of the checkpoint.
        chain: the paths of what the checkpoint goes on from.
        groups: how many named arrays are in each group, and their bytes.
        packages: the versions that wrote the checkpoint.
    """

    path: str
    format: str
    tables: Sequence[TableSummary]
    step: int | None = None
    chain: Sequence[str] = ()
    groups: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As plain data; what is no number is None."""
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        told["tables"] = [dataclasses.asdict(table) for table in self.tables]
        for table in told["tables"]:
            norms = table["norms"] or {}
            norms.update({name: None for name, value in norms.items() if value != value})
        return told

    def __rich__(self) -> RenderableType:
        """For `rich.print`."""
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [Text(f"{self.path}  {self._said()}", style="bold")]
        if self.chain:
            parts.append(Text(f"goes on from {', '.join(self.chain)}"))
        parts.append(self._tables())
        if self.groups:
            listed = [
                f"{name} ({count} arrays, {size(total)})"
                for name, (count, total) in self.groups.items()
            ]
            parts.append(Text(f"beside the tables: {', '.join(listed)}"))
        if self.packages:
            listed = [f"{name} {version}" for name, version in self.packages.items()]
            parts.append(Text(f"written with {', '.join(listed)}", style="dim"))
        return Group(*parts)

    def _said(self) -> str:
        total = sum(table.bytes for table in self.tables)
        step = "" if self.step is None else f"step {self.step}, "
        title = foreign.FORMATS[self.format].title
        return f"{title}, {step}{len(self.tables)} tables, {size(total)}"

    def _tables(self) -> RenderableType:
        rows = [_columns(table) for table in self.tables]
        # Columns that say nothing are left out.
        kept = [name for name in _COLUMNS if any(row[name] for row in rows)]
        table = _table(*kept)
        for row in rows:
            table.add_row(*(row[name] for name in kept))
        return table


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_COLUMNS = (
    "table", "keys", "rows", "used", "full", "dim", "dtype", "slots", "ids", "compression",
    "files", "bytes", "least norm", "mean", "largest", "not finite",
)  # fmt: skip


def _columns(one: TableSummary) -> dict[str, str]:
    norms = one.norms
    return {
        "table": one.name,
        "keys": one.keys,
        "rows": f"{one.rows:,}",
        "used": f"{one.used:,}",
        "full": f"{one.used / one.rows:.1%}" if one.rows else "",
        "dim": str(one.dim),
        "dtype": one.dtype,
        "slots": ", ".join(f"{name} {list(shape)}" for name, shape in one.slots.items()),
        "ids": one.ids,
        "compression": one.compression,
        "files": "" if one.files is None else str(one.files),
        "bytes": size(one.bytes),
        "least norm": "" if norms is None else f"{norms.least:.3g}",
        "mean": "" if norms is None else f"{norms.mean:.3g}",
        "largest": "" if norms is None else f"{norms.most:.3g}",
        "not finite": f"{norms.bad:,}" if norms is not None and norms.bad else "",
    }


def summarize(
    path: str | os.PathLike,
    format: str | None = None,
    tables: Iterable[str] | None = None,
    norms: bool = True,
) -> Summary:
    """What is in a checkpoint, or in files of another format.

    Args:
        path: where.
        format: its name in `foreign.FORMATS`; None: it is recognised.
        tables: names of the tables wanted; None: all.
        norms: whether to read all vectors for their lengths.

    Raises:
        FileNotFoundError: there is nothing.
        ValueError: it isn't of this format, it is damaged, or there is no such table.

    Example:
        >>> import tempfile, numpy as np
        >>> from merlin_embeddings.checkpoint.summary import summarize
        >>> path = tempfile.mkdtemp() + "/items.npy"
        >>> np.save(path, np.full((5, 4), 0.5, "float32"))
        >>> (items,) = summarize(path).tables
        >>> items.used, items.bytes, items.norms.mean
        (5, 120, 1.0)
    """
    format = foreign.recognise(path) if format is None else format
    sources = foreign.read(path, format, tables)
    found = Checkpoint(path) if format == "checkpoint" else None
    summaries = [_summary(source, found, norms) for source in sources]
    if found is None:
        return Summary(os.fspath(path), format, summaries)
    groups = {name: found.arrays(name) for name in found.groups}
    return Summary(
        os.fspath(path),
        format,
        summaries,
        found.step,
        [str(one.path) for one in found.chain[1:]],
        {
            name: (len(arrays), sum(arrays[key].nbytes for key in arrays))
            for name, arrays in groups.items()
        },
        dict(found.packages),
    )


def _summary(source: foreign.Source, found: Checkpoint | None, norms: bool) -> TableSummary:
    info = source.info
    entries = source.entries() if found is None else found.entries(info.name, slots=[])
    return TableSummary(
        name=info.name,
        keys=info.key,
        rows=info.rows,
        used=source.count,
        dim=info.dim,
        dtype=info.dtype,
        slots={name: slot.shape for name, slot in info.slots.items()},
        ids=_spec(info.ids),
        compression=_spec(info.compression),
        files=None if found is None else len(found.shards(info.name)),
        bytes=source.count * row_bytes(info),
        norms=measure(entries)[1] if norms else None,
    )


def measure(entries: Iterable[Entries]) -> tuple[int, Norms]:
    """How many rows there are, and the lengths of their vectors."""
    rows = bad = 0
    least, total, most = np.inf, 0.0, 0.0
    for some in entries:
        # float16 would overflow.
        lengths = np.linalg.norm(some.vectors.astype(np.float64), axis=1)
        good = lengths[np.isfinite(lengths)]
        rows, bad = rows + len(lengths), bad + len(lengths) - len(good)
        if len(good):
            least, most = min(least, float(good.min())), max(most, float(good.max()))
            total += float(good.sum())
    if rows == bad:
        return rows, Norms(float("nan"), float("nan"), float("nan"), bad)
    return rows, Norms(least, total / (rows - bad), most, bad)


def differences(found: Diff, a: str, b: str) -> RenderableType:
    """How two checkpoints differ, for `rich.print`."""
    from rich.console import Group
    from rich.text import Text

    if not found:
        return Text("no difference")
    table = _table(
        "table", f"only in {a}", f"only in {b}", "same", "different", "largest difference", "told"
    )
    for one in filter(None, found.tables.values()):
        apart = [f"{name} {value:.3g}" for name, value in one.largest.items() if value]
        told = [f"{what}: {was} / {now}" for what, (was, now) in one.info.items()]
        table.add_row(
            one.name,
            *(f"{count:,}" for count in (one.only_a, one.only_b, one.same, one.different)),
            ", ".join(apart),
            "; ".join(told),
        )
    parts: list[RenderableType] = [table] if any(found.tables.values()) else []
    parts += [Text(f"table '{name}': only in {a}") for name in found.only_a]
    parts += [Text(f"table '{name}': only in {b}") for name in found.only_b]
    parts += [Text(f"array '{name}' differs") for name in found.groups]
    return Group(*parts)


def size(count: int) -> str:
    """Bytes in words."""
    power = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{count} B" if not power else f"{count / 1024**power:.1f} {_UNITS[power]}"


def _spec(told: Mapping[str, Any] | None) -> str:
    """What a spec's plain data says, in a few words."""
    if told is None:
        return ""
    parts = []
    for name, value in told.items():
        if isinstance(value, Mapping):
            value = _spec(value)
        if name == "class" or value in (None, False, "", 0):
            continue
        parts.append(f"{name}={value}")
    return f"{told.get('class', '')}({', '.join(parts)})"


def _table(*columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    text = ("table", "keys", "dtype", "slots", "ids", "compression", "largest difference", "told")
    for column in columns:
        right = column not in text
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table
