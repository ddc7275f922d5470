"""Batches that somebody else makes, brought into the same form: Merlin's Loader, tf.data."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings.data.checking import Place, Rule, rules
from merlin_embeddings.data.columns import Column
from merlin_embeddings.data.selection import select

_VALUES, _OFFSETS = "__values", "__offsets"


def from_loader(
    loader: Any, known: list[Column], columns: Sequence[str] | None, targets: Any, check: bool
) -> tf.data.Dataset:
    """The batches of a `merlin.dataloader.tensorflow.Loader`.

    Raises:
        ValueError: the Loader has no batches, or gives something else than features and targets.
    """
    number = len(loader)
    if not number:
        raise ValueError("batches: the Loader has no batches.")
    turns = _Turns(loader)
    first = turns.first()
    checks = rules(known) if check else {}

    def read() -> Iterator[tuple[Any, ...]]:
        row = 0
        for batch in turns.batches():
            row += _check(batch[0], checks, row)
            yield batch

    signature = tf.nest.map_structure(lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), first)
    dataset = tf.data.Dataset.from_generator(read, output_signature=signature)
    dataset = from_dataset(dataset, known, columns, targets, None, False, "the Loader")
    return dataset.apply(tf.data.experimental.assert_cardinality(number))


def from_dataset(
    dataset: tf.data.Dataset,
    known: list[Column],
    columns: Sequence[str] | None,
    targets: Any,
    batch_size: int | None,
    drop_remainder: bool,
    name: str = "the tf.data.Dataset",
) -> tf.data.Dataset:
    """The batches of a `tf.data.Dataset` of dicts; of (dict, target) or (dict, target, weight).

    Raises:
        ValueError: elements of another form, or a column is missing.
    """
    spec = dataset.element_spec
    parts = spec if isinstance(spec, tuple) else (spec,)
    if not parts or len(parts) > 3 or not isinstance(parts[0], Mapping):
        raise ValueError(
            f"batches: elements of {name} are {spec}; they must be a dict of columns, (dict, "
            "target) or (dict, target, weight)."
        )
    if batch_size is not None:
        scalars = all(x.shape.rank == 0 for x in tf.nest.flatten(parts))
        batched = dataset.batch if scalars else dataset.ragged_batch
        dataset = batched(batch_size, drop_remainder=drop_remainder)
    elif any(x.shape.rank == 0 for x in tf.nest.flatten(parts)):
        raise ValueError(
            f"batches: elements of {name} are single rows, {spec}. Give batch_size=, or batch them "
            "before."
        )
    names = _names(parts[0])
    if len(parts) > 1:
        if targets is not None:
            raise ValueError(f"batches: {name} has targets of its own; leave targets= out.")
        known = [column for column in known if column.name in names or column.kind != "target"]
        targets = []
    selection = select(names, known, columns, targets)
    missing = [column for column in selection.names if column not in names]
    if missing:
        raise ValueError(f"Column {missing[0]!r} isn't in {name}, which has {names}.")
    lists = {column.name for column in known if column.is_list and column.kind != "embedding"}

    def tidy(*parts: Any) -> Any:
        found = selection.split(_tidy(parts[0], lists))
        return (found, *tf.nest.map_structure(_column, parts[1:])) if len(parts) > 1 else found

    return dataset.map(tidy)


class _Turns:
    """A Loader's iterations, one after the other: it can be in one place only."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._lock = threading.Lock()
        self._turn = 0

    def first(self) -> tuple[Any, ...]:
        with self._lock:
            batch = self._named(self._loader.peek())
            self._loader.stop()
        return batch

    def batches(self) -> Iterator[tuple[Any, ...]]:
        with self._lock:
            self._turn += 1
            mine = self._turn
            batches = iter(self._loader)
        while True:
            with self._lock:
                if mine != self._turn:
                    raise RuntimeError(
                        "The Loader was started again before this iteration's end. For two "
                        "iterations at once, make two Loaders."
                    )
                batch = next(batches, None)
            if batch is None:
                return
            yield self._named(batch)

    def _named(self, batch: Any) -> tuple[Any, ...]:
        """(columns,), the targets among them, or what the Loader's map functions made of them."""
        if not isinstance(batch, tuple) or not batch or not isinstance(batch[0], Mapping):
            raise ValueError(
                f"batches: the Loader gives a {type(batch).__name__}, and not (features, targets). "
                "Leave its map functions out and map the result of batches instead."
            )
        labels = self._loader.label_names
        features, target, *rest = (*batch, None)
        if rest[:-1]:
            return (features, target, *rest[:-1])
        if target is None:
            return (features,)
        if isinstance(target, Mapping):
            return ({**features, **target},)
        return ({**features, labels[0]: target},) if len(labels) == 1 else (features, target)


def _check(batch: Mapping[str, Any], checks: Mapping[str, Rule], row: int) -> int:
    """Holds a batch against the rules; how many rows it has."""
    place = Place("the Loader's rows", row)
    rows = 0
    for name, values in batch.items():
        column = name.removesuffix(_VALUES)
        rule = checks.get(column)
        if name.endswith(_OFFSETS) or (rule is None and rows):
            continue
        array = np.asarray(values)
        offsets = np.asarray(batch[column + _OFFSETS]) if column != name else None
        rows = len(array) if offsets is None else len(offsets) - 1
        if rule is None:
            continue
        if offsets is not None:
            rule.check_lengths(offsets, place)
        elif array.ndim > 1:
            offsets = np.arange(rows + 1) * array.shape[1]
        rule.check_ids(array.ravel(), place, offsets)
    return rows


def _names(columns: Mapping[str, Any]) -> list[str]:
    return [name.removesuffix(_VALUES) for name in columns if not name.endswith(_OFFSETS)]


def _tidy(columns: Mapping[str, Any], lists: set[str]) -> dict[str, Any]:
    found = {}
    for name, value in columns.items():
        if name.endswith(_OFFSETS):
            continue
        if name.endswith(_VALUES):
            name = name.removesuffix(_VALUES)
            splits = tf.cast(columns[name + _OFFSETS], tf.int64)
            value = tf.RaggedTensor.from_row_splits(_column(value), splits, validate=False)
        elif name in lists and isinstance(value, tf.Tensor) and value.shape.rank == 2:
            value = tf.RaggedTensor.from_tensor(value)
        found[name] = value if name in lists else _column(value)
    return found


def _column(value: Any) -> Any:
    """`[B, 1]` as `[B]`."""
    if isinstance(value, tf.Tensor) and value.shape.rank == 2 and value.shape[1] == 1:
        return tf.squeeze(value, 1)
    return value
