"""Where the encoding of a column lies: in a workflow, in a folder, or where a schema says."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from merlin_embeddings.data.columns import Column
from merlin_embeddings.data.columns import columns as read_columns


@dataclasses.dataclass(frozen=True)
class Found:
    """An encoding.

    Attributes:
        name: its name.
        path: of its vocabulary.
        oov: how many ids it has for values out of the vocabulary. None: the files know.
        buckets: among how many of them the workflow spreads such values. None: among all.
        meta: where the fit wrote its description.
    """

    name: str
    path: Path
    oov: int | None = None
    buckets: int | None = None
    meta: Path | None = None


def find(source: Any, column: Any) -> Found:
    """The encoding of `column`; see `Categories.of`."""
    known = _known(column)
    if hasattr(source, "output_node"):
        return _in_workflow(source, known.name)
    if isinstance(source, (str, os.PathLike)):
        return _in_folder(Path(source), known)
    return _in_schema(source, known.name)


def nodes(workflow: Any) -> Iterator[Any]:
    """The nodes of a workflow's graph, those nearest to its output first."""
    seen: set[int] = set()
    waiting = [workflow.output_node]
    while waiting:
        node = waiting.pop(0)
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += node.parents_with_dependencies


def is_categorify(op: Any) -> bool:
    """Whether an operator is a Categorify."""
    return hasattr(op, "categories") and hasattr(op, "freq_threshold")


def _known(column: Any) -> Column:
    """What the caller says of the column: perhaps no more than its name."""
    if isinstance(column, str):
        return Column(column)
    (column,) = read_columns([column])
    return column


def _in_workflow(workflow: Any, name: str) -> Found:
    known: set[str] = set()
    for op in [node.op for node in nodes(workflow) if is_categorify(node.op)]:
        joint = getattr(op, "encode_type", "joint") == "joint"
        stored = op.storage_name.get(name, name) if joint else name
        if stored in op.categories:
            num_buckets = op.num_buckets
            oov = num_buckets.get(stored) if isinstance(num_buckets, dict) else num_buckets
            return Found(
                stored,
                Path(op.categories[stored]),
                oov=oov or 1,
                buckets=_buckets(num_buckets, name, stored),
                meta=_meta_of_fit(workflow, name, stored),
            )
        known.update(op.categories)
    if not known:
        raise ValueError(
            "The workflow has no fitted Categorify, so nothing is known of column "
            f"{name!r}. Fit it first: workflow.fit(dataset)."
        )
    raise ValueError(
        f"The workflow's Categorify has no encoding of {name!r}; it has {sorted(known)}."
    )


def _meta_of_fit(workflow: Any, name: str, stored: str) -> Path | None:
    # `Workflow.save` copies the vocabularies and points the operator to them; the schema still has
    # the place where the fit wrote.
    for column in read_columns(workflow.output_schema):
        if column.name == name and column.cat_path:
            return Path(column.cat_path).with_name(f"meta.{stored}.parquet")
    return None


def _buckets(num_buckets: Any, name: str, stored: str) -> int:
    """Among how many ids NVTabular's transform spreads values out of the vocabulary."""
    if not num_buckets:
        return 1
    if isinstance(num_buckets, int):
        # It looks for the encoding's name among the columns', which columns that are encoded
        # together don't have: their values all go to the first id.
        return num_buckets if stored == name else 1
    return (num_buckets.get(name) or 1) if stored in num_buckets else 1


def _in_folder(folder: Path, column: Column) -> Found:
    name = column.name
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder, so no categories of {name!r}.")
    places = [place for place in (folder / "categories", folder) if place.is_dir()]
    for stored in dict.fromkeys([name, column.table]):
        for place in places:
            if any((place / f"{kind}.{stored}.parquet").exists() for kind in ("unique", "meta")):
                return _stored(place / f"unique.{stored}.parquet", column)
    encodings = {path.name[7:-8]: path for p in places for path in p.glob("unique.*.parquet")}
    joint = [stored for stored in encodings if f"_{name}_" in f"_{stored}_"]
    if len(joint) == 1:
        warnings.warn(
            f"{folder}: column {name!r} has no encoding of its own; it is taken for one of the "
            f"columns that were encoded together as {joint[0]!r}. To be sure, give the column of "
            "the schema instead of its name.",
            stacklevel=4,
        )
        return _stored(encodings[joint[0]], column)
    if not encodings:
        raise FileNotFoundError(
            f"{folder}: no files unique.<column>.parquet, neither here nor in categories/. Give "
            "the folder that the workflow was saved to."
        )
    if joint:
        raise ValueError(
            f"{folder}: column {name!r} may be encoded in any of {sorted(joint)}. Give the name of "
            "the encoding, or the column of the schema instead of its name."
        )
    raise ValueError(f"{folder}: no encoding of column {name!r}; there are {sorted(encodings)}.")


def _in_schema(schema: Any, name: str) -> Found:
    known = {column.name: column for column in read_columns(schema)}
    if name not in known:
        raise ValueError(f"The schema has no column {name!r}; it has {sorted(known)}.")
    column = known[name]
    if not column.cat_path:
        raise ValueError(
            f"Column {name!r}: the schema doesn't say where its categories are (no cat_path), so "
            "Categorify hasn't encoded it."
        )
    path = Path(column.cat_path)
    if not path.exists():
        raise FileNotFoundError(
            f"Column {name!r}: {path} isn't there; the schema keeps the place of the fit. Give the "
            "folder where the workflow is now: Categories.of(folder, column)."
        )
    return _stored(path, column)


def _stored(path: Path, column: Column) -> Found:
    stored = path.name.removeprefix("unique.").removesuffix(".parquet")
    if stored == path.stem:
        stored = column.table  # a given vocabulary may have any name
    return Found(
        stored,
        path,
        # Only a column that Categorify made says so.
        oov=None if column.freq_threshold is None else column.num_buckets or 1,
        # Columns that are encoded together: see `_buckets`.
        buckets=None if stored == column.name else 1,
        meta=Path(column.cat_path).with_name(f"meta.{stored}.parquet") if column.cat_path else None,
    )
