"""What a model consists of, as a checkpoint has it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from merlin_embeddings import compat
from merlin_embeddings.ids.known_map import KnownIdsMap, known_ids_of
from merlin_embeddings.saving.kinds import kind_of
from merlin_embeddings.saving.names import table_names, unique
from merlin_embeddings.tables import DenseTable, MovingTable, Slot, table_of


@dataclass(frozen=True)
class TablePart:
    """A table with what the model's optimizer keeps for its rows.

    Attributes:
        name: the logical name.
        table: the table.
        slots: by the names that the optimizer gives them.
        kind: of the optimizer that trains it; None: the model has none.
    """

    name: str
    table: DenseTable
    slots: Mapping[str, Slot]
    kind: str | None


@dataclass(frozen=True)
class Parts:
    """All that a model is.

    Attributes:
        tables: by logical name.
        known: maps of ids that are known beforehand, by the path of their index.
        weights: all other weights by path.
        random: the states of the layers' random generators.
        optimizer: what the optimizer keeps but for slots of tables, in its order; None: the model
            has no optimizer.
        kind: of the optimizer that trains all that isn't tables, or None.
    """

    tables: Mapping[str, TablePart]
    known: Mapping[str, KnownIdsMap]
    weights: Mapping[str, Any]
    random: list[Any]
    optimizer: list[Any] | None
    kind: str | None


def parts_of(model: Any) -> Parts:
    """The parts of a model, or of a layer.

    Args:
        model: whose; built.

    Raises:
        ValueError: it isn't built yet, or has tables that can't be told apart.
    """
    _require_built(model)
    weights = list(model.weights)
    found = [table for table in map(table_of, weights) if table is not None]
    optimizer = getattr(model, "optimizer", None)
    kept = None if optimizer is None else compat.optimizer_variables(optimizer)
    tables = {
        name: TablePart(name, table, table.slots_among(kept or ()), kind_of(optimizer, table))
        for name, table in zip(table_names(found), found, strict=True)
    }
    known = _known(weights)
    aside = {id(variable) for table in found for variable in _variables_of(table)}
    aside |= {id(variable) for ids in known.values() for variable in ids.weights.values()}
    slots = {id(slot.variable) for part in tables.values() for slot in part.slots.values()}
    dense = [weight for weight in weights if id(weight) not in aside]
    return Parts(
        tables,
        known,
        dict(zip(unique([compat.path_of(weight) for weight in dense]), dense, strict=True)),
        compat.random_variables(model),
        None if kept is None else [v for v in kept if id(v) not in slots],
        kind_of(optimizer),
    )


def build_optimizer(model: Any) -> None:
    """Has the model's optimizer make its variables, if there is one that hasn't.

    Raises:
        ValueError: the model isn't built yet: those of its later weights would never be made.
    """
    _require_built(model)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        # Its variables are mirrored where the model's are.
        strategy = getattr(model, "distribute_strategy", None)
        with nullcontext() if strategy is None else strategy.scope():
            compat.build_optimizer(optimizer, model.trainable_variables)


def _require_built(model: Any) -> None:
    if not model.built or not model.weights:
        raise ValueError(
            f"Model {model.name!r} has no weights yet, or not all of them. Build it first: call it "
            "on a batch, or give it inputs."
        )


def _variables_of(table: DenseTable) -> list[Any]:
    return list(table.variables) if isinstance(table, MovingTable) else [table.variable]


def _known(weights: list[Any]) -> dict[str, KnownIdsMap]:
    found: dict[int, tuple[str, KnownIdsMap]] = {}
    for weight in weights:
        ids = known_ids_of(weight)
        if ids is not None and id(ids) not in found:
            path = compat.path_of(weight).removesuffix("_ids_tags")
            found[id(ids)] = (path, ids)
    paths = unique([path for path, _ in found.values()])
    return dict(zip(paths, (ids for _, ids in found.values()), strict=True))
