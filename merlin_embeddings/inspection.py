"""`inspect`: a table at a glance."""

from __future__ import annotations

import dataclasses
import io
import os
from typing import Any

import numpy as np

from merlin_embeddings import compat
from merlin_embeddings.tables import DenseTable, MovingTable, statistics

TOP = 5
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)
_INK, _SOFT = "#1b7837", "#d9d9d9"


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What `inspect` found. Prints as text; `rich` shows it as a table, notebooks as a picture.

    Attributes:
        name: of the table.
        facts: what there is to say, {what: value}, in a stated order.
        scores: [N] int64, what the policy makes of the ids that have rows, the highest first; None
            where rows don't move.
        top: [N, 2] int64, the ids with the highest scores and these.
        counted: {what: lookups}, of training so far; {} where rows don't move.
        capacity: how many ids can have rows.
        policy: how scores come about, or "".
    """

    name: str
    facts: dict[str, str]
    scores: np.ndarray | None = None
    top: np.ndarray | None = None
    counted: dict[str, int] = dataclasses.field(default_factory=dict)
    capacity: int = 0
    policy: str = ""

    def __str__(self) -> str:
        width = max(map(len, self.facts))
        lines = [f"  {what:<{width}}  {value}" for what, value in self.facts.items()]
        return "\n".join([f"table '{self.name}'", *lines])

    def __rich__(self) -> Any:
        """For `rich.print`."""
        from rich.table import Table

        table = Table(title=f"table '{self.name}'", title_justify="left", show_header=False)
        for what, value in self.facts.items():
            table.add_row(what, value)
        return table

    def picture(self, path: str | os.PathLike | None = None) -> Any:
        """Scores by rank, and what became of the lookups, drawn by matplotlib.

        Args:
            path: a file to write, whose name ends in .svg, .png or another kind that matplotlib
                knows; None: none.

        Returns:
            The `matplotlib.figure.Figure`.

        Raises:
            ValueError: a table whose rows don't move has no scores.
            ImportError: matplotlib isn't installed.
        """
        if self.scores is None:
            raise ValueError(
                f"table '{self.name}': its rows don't move, so there are no scores to draw; "
                "print() says what there is."
            )
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError(
                "Inspection.picture() draws with matplotlib: pip install matplotlib. "
                "print() does without."
            ) from error
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        figure.suptitle(
            f"table '{self.name}': {len(self.scores):,} of {self.capacity:,} rows, {self.policy}"
        )
        left, right = figure.subplots(1, 2, width_ratios=(2, 1))
        self._draw_scores(left)
        self._draw_lookups(right)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def _repr_svg_(self) -> str | None:
        """For notebooks."""
        if self.scores is None:
            return None
        text = io.StringIO()
        self.picture().savefig(text, format="svg")
        return text.getvalue()

    def _draw_scores(self, axes: Any) -> None:
        scores = self.scores
        assert scores is not None
        axes.step(np.arange(1, 1 + len(scores)), scores, where="post", color=_INK)
        axes.axvline(self.capacity, color=_SOFT)
        axes.set_xscale("log")
        axes.set_xlabel("ids by rank; the line is the capacity")
        axes.set_ylabel("score: the lowest goes first")
        if len(scores) and scores[0] > 20 * max(1, scores[-1]):
            axes.set_yscale("symlog")
        axes.grid(alpha=0.3)

    def _draw_lookups(self, axes: Any) -> None:
        names = list(self.counted)[::-1]
        values = [self.counted[name] for name in names]
        bars = axes.barh(names, values, color=_INK)
        axes.bar_label(bars, [f"{value:,}" for value in values], padding=3)
        axes.set_xlabel("in training so far")
        axes.margins(x=0.3)


def inspect(table: Any) -> Inspection:
    """What there is to know of a table at a glance.

    Args:
        table: a table, or a layer that has one table.

    Returns:
        An `Inspection`: `print` it; `rich.print` makes a table of it, `picture("scores.svg")` draws
        its scores.

    Raises:
        ValueError: a layer that has no table yet, or several.

    >>> import tensorflow as tf
    >>> import merlin_embeddings as me
    >>> item = me.layers.Embedding(None, 4, ids=me.ids.ManagedCollision(160, "lfu"), name="item")
    >>> _ = item(tf.constant([7, 7, 8]), training=True)
    >>> found = me.inspect(item)
    >>> found.top.tolist()
    [[7, 2], [8, 1]]
    >>> print(found.facts["ids with rows"])
    2 of 160 (1.2%)
    """
    table = _the_table(table)
    facts = {
        "rows": f"{table.rows:,} of {table.dim} {table.config.dtype}, {_bytes(table.variable)}",
        "slots of optimizers": ", ".join(
            f"{name} {_bytes(slot.variable)}" for name, slot in table.slots.items()
        )
        or "none",
    }
    if not isinstance(table, MovingTable):
        facts["ids"] = repr(table.config.ids) if table.config.ids else "row = id"
        return Inspection(table.name, facts)
    ids, scores = _ranked(table)
    counted = dict(zip(statistics.COUNTED, statistics.counters(table).numpy(), strict=True))
    facts |= _id_facts(table, scores, counted)
    top = np.stack([ids, scores], axis=1)[:TOP]
    facts["highest scores"] = ", ".join(f"{id} ({score:,})" for id, score in top) or "none"
    lookups = {
        "found": counted["hits"],
        "not admitted": counted["not_admitted"],
        "overflowed": counted["overflowed"],
        "ids admitted": counted["inserted"],
        "ids evicted": counted["evicted"],
    }
    return Inspection(
        table.name,
        facts,
        scores,
        top,
        {name: int(value) for name, value in lookups.items()},
        table.capacity,
        _policy(table),
    )


def _the_table(table: Any) -> DenseTable:
    tables = statistics.tables_in(table)
    if len(tables) != 1:
        name = getattr(table, "name", table)
        raise ValueError(
            f"inspect: {name!r} has "
            + (
                f"several tables, {', '.join(tables)}; inspect one of them, as layer.tables[name]."
                if tables
                else "no table, or none yet: build it first."
            )
        )
    return next(iter(tables.values()))


def _ranked(table: MovingTable) -> tuple[np.ndarray, np.ndarray]:
    """Ids and scores, the highest first; ids of one score ascend."""
    known = list(table.ids.known())
    ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in known)])
    scores = np.concatenate([np.empty(0, np.int64), *(part.scores for part in known)])
    order = np.lexsort([ids, -scores])
    return ids[order], scores[order]


def _id_facts(table: MovingTable, scores: np.ndarray, counted: dict) -> dict[str, str]:
    state = sum(_size(variable) for variable in table.ids.variables)
    looked_up = max(1, int(counted["looked_up"]))
    quantiles = [f"{q:,.0f}" for q in np.quantile(scores, QUANTILES)] if len(scores) else []
    share = len(scores) / table.capacity
    return {
        "ids": repr(table.config.ids),
        "ids with rows": f"{len(scores):,} of {table.capacity:,} ({share:.1%})",
        "bytes of the id map": f"{state:,} ({state / table.capacity:.1f} a row)",
        "lookups in training": f"{counted['looked_up']:,}",
        "of these found": f"{counted['hits'] / looked_up:.1%}",
        "without a row": f"{counted['not_admitted'] / looked_up:.1%} not admitted, "
        f"{counted['overflowed'] / looked_up:.1%} overflowed",
        "ids admitted, evicted": f"{counted['inserted']:,}, {counted['evicted']:,}",
        "scores: least, quartiles, most": ", ".join(quantiles) or "none",
    }


def _policy(table: MovingTable) -> str:
    spec = table.config.ids
    return str(getattr(spec, "policy", None) or getattr(spec, "when_full", ""))


def _size(variable: Any) -> int:
    value = compat.raw_variable(variable)
    return int(np.prod(value.shape)) * value.dtype.size


def _bytes(variable: Any) -> str:
    size = float(_size(variable))
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
