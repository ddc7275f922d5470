"""`load`: a checkpoint into a model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from merlin_embeddings import compat
from merlin_embeddings.checkpoint import Checkpoint
from merlin_embeddings.saving import fits, generators, tracking
from merlin_embeddings.saving.names import matched, matched_tables
from merlin_embeddings.saving.parts import Parts, build_optimizer, parts_of
from merlin_embeddings.saving.ways import Source, Way
from merlin_embeddings.saving.write import IDS, OPTIMIZER, RANDOM, WEIGHTS, shared_rows


@dataclass(frozen=True)
class Loaded:
    """What `load` has done.

    Attributes:
        path: of the checkpoint.
        step: how many steps had been made.
        epoch: of the epoch that was being made, from 0.
        batch: how many batches of it had been made.
        metadata: what `save` was given.
        tables: how the rows of each table came, for people.
        left: what the model has, and the checkpoint hasn't, or the other way round; with
            `strict=True` nothing.
    """

    path: str
    step: int | None
    epoch: int
    batch: int
    metadata: Mapping[str, Any]
    tables: Mapping[str, str]
    left: list[str] = field(default_factory=list)


def load(
    model: Any,
    path: str | os.PathLike,
    *,
    tables: Iterable[str] | Mapping[str, str] | None = None,
    strict: bool = True,
    ids: Mapping[str, Any] | None = None,
    process_generators: bool = False,
) -> Loaded:
    """Has a model be what a checkpoint has: tables, optimizer, id maps, weights, random generators.

    All is compared before anything is written. What is read is checked as it comes: where a file
    turns out to be damaged halfway, the error says so and the model is loaded in part.

    Args:
        model: a Keras model, or a layer; built, and compiled as it will be trained. Its optimizer
            needn't be built.
        path: of the checkpoint.
        tables: only these tables, and nothing else: names, or a dict from the names that they have
            here to those in the checkpoint. None: all there is.
        strict: whether model and checkpoint have to have the same. False: what fits is loaded.
            Rows may be of another dtype (rounded to the nearest, ties to even); tables whose row is
            the id may have more rows, the new ones start anew; tables whose ids are known (rows of
            their own, vocabularies, ids that are numbers) come by id into tables with other maps;
            what the optimizer keeps and the checkpoint hasn't starts anew; what else one of both
            hasn't is left as it is.
        ids: for tables of the checkpoint that don't know their ids (`ids.Modulo`, `ids.Hash`), or
            knew them by other numbers: which ids there are, by table. An array [N] of integers or
            strings; a pair of these, as they were and as they are; or `data.Categories`, for a
            table of the ids that NVTabular gave that now takes the raw values.
        process_generators: whether Python's, NumPy's and Keras's own random generators are set,
            too, as a run needs that goes on where it stopped.

    Returns:
        Where training stood, and what was loaded how.

    Raises:
        FileNotFoundError: there is no checkpoint, or a part of it is missing.
        merlin_embeddings.checkpoint.BrokenCheckpoint: a file is damaged.
        ValueError: what doesn't fit, all of it in one message; nothing has been written then.
        KeyError: a name in `tables` or `ids` that there isn't.

    >>> import tempfile
    >>> import numpy as np
    >>> import merlin_embeddings as me
    >>> one, other = (me.layers.Embedding(4, 2, name="item") for _ in range(2))
    >>> one.build(); other.build()
    >>> path = tempfile.mkdtemp() + "/step-0"
    >>> _ = me.save(one, path)
    >>> me.load(other, path).tables
    {'item': 'rows'}
    >>> bool(np.all(one.embeddings == other.embeddings))
    True
    """
    there = Checkpoint(path)
    if there.metadata.get("unfinished"):
        raise ValueError(
            f"{there.path} is what a checkpoint in the making goes on from, and no checkpoint by "
            "itself: its rows are of different steps. Load the one that goes on from it"
        )
    build_optimizer(model)
    parts = parts_of(model)
    plan = _Plan(parts, there, tables, strict, dict(ids or {}))
    plan.check()
    optimizer = getattr(model, "optimizer", None)
    tracking.watch(parts, optimizer)
    plan.load_tables()
    if tables is None:
        plan.load_rest(process_generators)
        if strict:
            tracking.remember(parts, tracking.marks_of(parts), there.id)
    return Loaded(
        path=str(there.path),
        step=there.step,
        epoch=int(there.metadata.get("epoch", 0)),
        batch=int(there.metadata.get("batch", 0)),
        metadata=there.metadata.get("user", {}),
        tables={name: way.says for name, (way, _) in plan.ways.items()},
        left=plan.left,
    )


class _Plan:
    """What goes where, and what doesn't fit."""

    def __init__(
        self, parts: Parts, there: Checkpoint, tables: Any, strict: bool, ids: dict[str, Any]
    ) -> None:
        self.parts, self.there, self._strict = parts, there, strict
        self._whole = tables is None
        self._keeps = parts.optimizer is not None
        self.left: list[str] = []
        self._faults: list[str] = []
        self.ways: dict[str, tuple[Way, Source]] = {}
        moving = (name for name, info in there.tables.items() if info.key == "id")
        shared = set(map(shared_rows, moving))
        self._there = [name for name in there.tables if name not in shared]
        self._names = self._named(tables)
        for name in ids:
            if name not in self._names:
                raise KeyError(f"ids= names table '{name}'; loaded are {sorted(self._names)}")
        for name, theirs in self._names.items():
            self._add(name, theirs, ids.get(name))
        self._weights = matched(list(parts.weights), self._group(WEIGHTS))
        self._known = matched(list(parts.known), self._group(IDS))
        if self._whole:
            self._compare()

    def check(self) -> None:
        """Raises ValueError unless all can be done."""
        faults = [*self._faults, *(self.left if self._strict else [])]
        if faults:
            listed = "\n  ".join(faults)
            hint = "" if self._faults or not self._strict else "\nstrict=False loads what fits."
            raise ValueError(
                f"{self.there.path} isn't of this model, and nothing was loaded:\n  {listed}{hint}"
            )

    def load_tables(self) -> None:
        """Writes tables with their slots."""
        for name, (way, source) in self.ways.items():
            part = self.parts.tables[name]
            try:
                way.go(part, source)
            finally:
                part.table.changes.lose()

    def load_rest(self, process_generators: bool) -> None:
        """Writes all that isn't rows."""
        for name, theirs in self._known.items():
            self.parts.known[name].load(self.there.arrays(IDS)[theirs])
        weights = self.there.arrays(WEIGHTS) if self._weights else {}
        for name, theirs in self._weights.items():
            _assign(self.parts.weights[name], weights[theirs])
        if self._loads_optimizer:
            values = self.there.arrays(OPTIMIZER)
            for variable, name in zip(self.parts.optimizer or (), sorted(values), strict=True):
                _assign(variable, values[name])
        if RANDOM in self.there.groups:
            saved = self.there.arrays(RANDOM)
            if not generators.check(self.parts.random, saved):
                generators.restore_layers(self.parts.random, saved)
            if process_generators:
                generators.restore_process(saved)

    # Parts

    def _named(self, tables: Any) -> dict[str, str]:
        if tables is None:
            return matched_tables(list(self.parts.tables), self._there)
        if isinstance(tables, str):
            tables = [tables]
        named = dict(tables) if isinstance(tables, Mapping) else {name: name for name in tables}
        for name, theirs in named.items():
            if name not in self.parts.tables:
                raise KeyError(f"No table '{name}' in the model; it has {list(self.parts.tables)}")
            if theirs not in self._there:
                raise KeyError(f"No table '{theirs}' in {self.there.path}; it has {self._there}")
        return named

    def _add(self, name: str, theirs: str, ids: Any) -> None:
        part, info = self.parts.tables[name], self.there.tables[theirs]
        try:
            way = fits.way(part, self.there, info, ids, self._strict)
            if self._strict and self._keeps:
                fits.require_same_slots(part, info)
        except ValueError as error:
            self._faults.append(str(error))
            return
        slots = fits.slots_in_common(part, info)
        self.ways[name] = (way, Source(self.there, info, slots))

    def _group(self, name: str) -> list[str]:
        return list(self.there.arrays(name)) if name in self.there.groups else []

    def _compare(self) -> None:
        """What one of both has and the other hasn't, or in another shape."""
        self._missing("table", self.parts.tables, self._there, self._names)
        self._missing("weight", self.parts.weights, self._group(WEIGHTS), self._weights)
        self._missing("known ids", self.parts.known, self._group(IDS), self._known)
        weights = self.there.arrays(WEIGHTS) if self._weights else {}
        for name, theirs in list(self._weights.items()):
            self._compare_shapes(
                f"weight '{name}'",
                self.parts.weights[name],
                weights[theirs],
                lambda name=name: self._weights.pop(name),
            )
        for name, theirs in list(self._known.items()):
            try:
                what = f"Known ids '{name}'"
                self.parts.known[name].check_saved(self.there.arrays(IDS)[theirs], what)
            except ValueError as error:
                self._known.pop(name)
                self.left.append(str(error))
        self._loads_optimizer = self._compare_optimizers()
        if RANDOM in self.there.groups:
            self.left += generators.check(self.parts.random, self.there.arrays(RANDOM))

    def _missing(self, what: str, ours: Any, theirs: Any, found: Mapping[str, str]) -> None:
        self.left += [f"{what} '{one}' isn't in the checkpoint" for one in ours if one not in found]
        used = set(found.values())
        self.left += [f"{what} '{one}' isn't in the model" for one in theirs if one not in used]

    def _compare_shapes(self, what: str, variable: Any, value: Any, leave: Any) -> None:
        shape = list(compat.raw_variable(variable).shape)
        if shape != list(np.shape(value)):
            leave()
            self.left.append(
                f"{what} has shape {shape}, that of the checkpoint {list(np.shape(value))}"
            )

    def _compare_optimizers(self) -> bool:
        """Whether the model's optimizer is that of the checkpoint."""
        if not self._keeps:
            return False  # a model to predict with
        if OPTIMIZER not in self.there.groups:
            self.left.append("the model has an optimizer, the checkpoint has none")
            return False
        values = self.there.arrays(OPTIMIZER)
        theirs = [list(np.shape(values[name])) for name in sorted(values)]
        ours = [list(compat.raw_variable(one).shape) for one in self.parts.optimizer or ()]
        if ours != theirs:
            self.left.append(
                f"the optimizer's variables have shapes {ours}, those of the checkpoint {theirs}"
            )
            return False
        if not fits.same_kind(self.parts.kind, self.there.metadata):
            self.left.append(
                f"the model's optimizer is {self.parts.kind}, that of the checkpoint "
                f"{self.there.metadata['optimizer']}"
            )
            return False
        return True


def _assign(variable: Any, value: np.ndarray) -> None:
    dtype = compat.raw_variable(variable).dtype.as_numpy_dtype
    variable.assign(value if value.dtype == dtype else value.astype(dtype))
