"""What a workflow learned, in short: kept with a model, compared when the model serves."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from merlin_embeddings.config import spec, to_plain
from merlin_embeddings.data.categorify import Categories
from merlin_embeddings.data.category_sources import is_categorify, nodes
from merlin_embeddings.data.columns import Column, columns

# Facts of an operator that say nothing about what it does: places, speed, state.
_IRRELEVANT = frozenset(
    [
        "cardinality_memory_limit",
        "cat_cache",
        "fitted",
        "on_host",
        "out_path",
        "split_every",
        "split_out",
        "storage_name",
        "tree_width",
    ]
)
_FILES = ("categories", "stats")


@spec
@dataclasses.dataclass(frozen=True)
class Fingerprint:
    """What a workflow, or a schema, says of each column that a model takes.

    `Fingerprint.of` makes it. Two workflows with one fingerprint give a model the same numbers for
    the same raw values: vocabularies in the order of their ids, means, fill values, bounds are part
    of it; where files lie isn't, nor are targets. What functions do (`LambdaOp`) can't be seen.

    Args:
        facts: by column, by fact.
        fitted: whether it is a workflow's; a schema knows less.

    >>> from merlin_embeddings.data import Column, Domain
    >>> before, after = (
    ...     Fingerprint.of([Column("item", ("categorical",), "int64", domain=Domain("item", 0, n))])
    ...     for n in (99, 119)
    ... )
    >>> before.check(after)
    Traceback (most recent call last):
    ...
    ValueError: The workflow isn't the one that the model was trained with:
      column 'item': largest id was 99, is 119
    Serve with the workflow that was saved with the model, or train again.
    """

    facts: Mapping[str, Mapping[str, Any]]
    fitted: bool = False

    @classmethod
    def of(cls, source: Any) -> Fingerprint:
        """The fingerprint of a fitted `nvtabular.Workflow`, or of a schema.

        Raises:
            FileNotFoundError: files of the workflow are gone.
            ValueError: they can't be read.
        """
        is_workflow = hasattr(source, "output_node")
        known = columns(source.output_schema if is_workflow else source)
        targets = {column.name for column in known if column.kind == "target"}
        facts = {column.name: dict(_of_schema(column)) for column in known}
        if is_workflow:
            for node in nodes(source):
                for name, fact, value in _of_node(source, node):
                    mine = facts.setdefault(name, {})
                    while fact in mine:
                        fact += " (earlier)"
                    mine[fact] = to_plain(value)
        return cls({name: facts[name] for name in facts if name not in targets}, is_workflow)

    def check(self, source: Any) -> None:
        """Compares what serves with what was trained on.

        Args:
            source: a workflow, a schema, or a Fingerprint. Its further columns don't matter.

        Raises:
            ValueError: a column is missing or something changed; the message names each column and
                what was and is.
        """
        other = source if isinstance(source, Fingerprint) else Fingerprint.of(source)
        both = self.fitted and other.fitted
        changes = []
        for name, facts in self.facts.items():
            if name not in other.facts:
                if both or any(fact in _SCHEMA for fact in facts):
                    changes.append(f"column {name!r} is missing")
                continue
            theirs = other.facts[name]
            for fact in dict.fromkeys([*facts, *theirs]):
                if both or fact in _SCHEMA:
                    changes += _change(name, fact, facts.get(fact), theirs.get(fact))
        if changes:
            raise ValueError(
                "The workflow isn't the one that the model was trained with:\n  "
                + "\n  ".join(changes)
                + "\nServe with the workflow that was saved with the model, or train again."
            )


def check_fingerprint(model: Any, source: Any) -> None:
    """Compares a workflow with the one that a model was trained with.

    Args:
        model: a Keras model with a layer that keeps a fingerprint, such as
            `InputBlock(schema, fingerprint=Fingerprint.of(workflow))`.
        source: the workflow that serves, or its schema.

    Raises:
        ValueError: no layer keeps a fingerprint, or it is another workflow; see
            `Fingerprint.check`.
    """
    found = [layer.fingerprint for layer in _layers(model) if getattr(layer, "fingerprint", None)]
    if not found:
        raise ValueError(
            f"Model {model.name!r} keeps no fingerprint. Give it one when it is made: "
            "InputBlock(schema, fingerprint=Fingerprint.of(workflow))."
        )
    for fingerprint in found:
        fingerprint.check(source)


_SCHEMA = ("dtype", "lists", "table", "largest id")


def _of_schema(column: Column) -> Iterator[tuple[str, Any]]:
    yield "dtype", column.dtype
    yield "lists", column.is_list
    if column.kind == "categorical" and column.domain is not None:
        yield "table", column.table
        yield "largest id", column.domain.max


def _of_node(workflow: Any, node: Any) -> Iterator[tuple[str, str, Any]]:
    """(column, fact, value) of what an operator has learned or was told."""
    op, names = node.op, list(node.output_schema.column_names)
    if is_categorify(op):
        for name in names:
            categories = Categories.of(workflow, name)
            yield name, "cardinality", categories.cardinality
            yield name, "ids out of the vocabulary", len(categories.oov)
            yield name, "vocabulary", _digest(categories.vocabulary)
        return
    for attribute, value in vars(op).items():
        fact = f"{type(op).__name__}.{attribute}"
        if attribute.startswith("_") or attribute in _IRRELEVANT:
            continue
        if attribute in _FILES and isinstance(value, Mapping):
            for name in names:
                yield name, fact, {key: _digest_files(Path(path)) for key, path in value.items()}
        elif isinstance(value, Mapping) and value and set(value) <= set(names):
            for name, mine in value.items():
                if _is_plain(mine):
                    yield name, fact, mine
        elif value is not None and _is_plain(value):
            for name in names:
                yield name, fact, value


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return isinstance(value, (bool, int, float, str, np.generic, np.ndarray))


def _digest(table: pa.Table) -> str:
    """Of the values in their order, however they are stored."""
    found = hashlib.sha256()
    for name, column in zip(table.column_names, table.columns, strict=True):
        array = column.combine_chunks()
        found.update(f"{name}:{array.type}:{len(array)};".encode())
        if array.null_count:
            found.update(np.packbits(array.is_null().to_numpy(False)).tobytes())
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            lengths = pc.fill_null(pc.binary_length(array), 0)
            found.update(np.asarray(lengths.to_numpy(False), np.int64).tobytes())
            found.update("".join(value or "" for value in array.to_pylist()).encode())
        elif pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
            found.update(array.fill_null(0).to_numpy(False).tobytes())
        else:
            found.update(repr(array.to_pylist()).encode())
    return found.hexdigest()[:16]


def _digest_files(path: Path) -> str:
    """Of the bytes of a file, or of all files of a folder."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: a file of the workflow is gone; save the workflow again.")
    found = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:16]


def _change(name: str, fact: str, was: Any, now: Any) -> list[str]:
    if was == now or (was != was and now != now):
        return []
    return [f"column {name!r}: {fact} was {was!r}, is {now!r}"]


def _layers(model: Any) -> Iterator[Any]:
    yield model
    for layer in getattr(model, "layers", ()):
        yield from _layers(layer)
