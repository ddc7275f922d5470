"""What a person sees of the maps: a table a stream, what lost, and a picture over time."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table
from streaming_maps import BASELINES, FULL, MODULO, ORACLE

SMOOTH = 7  # days that a point is the mean of, where there are many


@dataclass(frozen=True)
class Run:
    """What came of one map and seed."""

    auc: float  # of the test, or the days' mean, a day counts as its samples do
    valid: float | None  # in validation, where there is one
    days: list[float]  # NaN where there are only likes or none; by epochs: each one's in validation
    rows: int  # of the open columns' tables
    bytes: int  # of these: vectors, the optimizer's slots, the id map
    known: float | None  # share of lookups that found a row of their own
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What came of one map, seed by seed."""

    name: str
    runs: list[Run]

    @property
    def auc(self) -> float:
        """The mean over the seeds."""
        return float(np.mean([run.auc for run in self.runs]))

    @property
    def spread(self) -> float:
        """Half of the range over the seeds."""
        return float(np.ptp([run.auc for run in self.runs])) / 2

    @property
    def valid(self) -> float | None:
        """In validation, the mean over the seeds."""
        known = [run.valid for run in self.runs if run.valid is not None]
        return float(np.mean(known)) if known else None

    @property
    def days(self) -> np.ndarray:
        """[D], the mean over the seeds; where some stopped earlier, over those that went on."""
        longest = max(len(run.days) for run in self.runs)
        days = np.full([len(self.runs), longest], np.nan)
        for at, run in enumerate(self.runs):
            days[at, : len(run.days)] = run.days
        there = ~np.isnan(days)
        sums, counts = np.where(there, days, 0).sum(0), there.sum(0)
        return np.divide(sums, counts, np.full(longest, np.nan), where=counts > 0)

    def record(self) -> dict:
        """As plain data."""
        runs = [dataclasses.asdict(run) for run in self.runs]
        for one in runs:
            one["days"] = [None if math.isnan(day) else day for day in one["days"]]
        return {"map": self.name, "auc": self.auc, "valid": self.valid, "runs": runs}


def gap_closed(auc: float, modulo: float, oracle: float) -> float:
    """Where `auc` stands between the two: 0 is modulo's, 1 the oracle's."""
    return (auc - modulo) / (oracle - modulo)


def _named(outcomes: list[Outcome], name: str) -> Outcome:
    return next(one for one in outcomes if one.name == name)


def _closed(outcomes: list[Outcome], one: Outcome) -> float:
    low, high = _named(outcomes, MODULO).auc, _named(outcomes, ORACLE).auc
    return gap_closed(one.auc, low, high)


def table(outcomes: list[Outcome], title: str) -> Table:
    """AUC, rows, bytes and the gap closed, a row a map."""
    result = Table(title=title, title_justify="left")
    result.add_column("rows of ids")
    by_epochs = outcomes[0].valid is not None
    headings = ["AUC", "gap closed", "rows", "kB", "lookups with own row", "s"]
    for heading in (["in validation"] if by_epochs else []) + headings:
        result.add_column(heading, justify="right")
    for one in outcomes:
        run = one.runs[0]
        spread = f" ± {one.spread:.4f}" if len(one.runs) > 1 else ""
        closed = "-" if one.name in BASELINES else f"{_closed(outcomes, one):.0%}"
        known = [run.known for run in one.runs if run.known is not None]
        result.add_row(
            one.name,
            *([f"{one.valid:.4f}"] if by_epochs else []),
            f"{one.auc:.4f}{spread}",
            closed,
            f"{run.rows:,}",
            f"{run.bytes / 1e3:,.0f}",
            f"{np.mean(known):.1%}" if known else "-",
            f"{sum(run.seconds for run in one.runs):.0f}",
        )
    return result


def chosen(outcomes: list[Outcome]) -> Iterator[str]:
    """The policy that is best in validation, and what it is in the test."""
    policies = [one for one in outcomes if one.name not in BASELINES and one.valid is not None]
    if policies:
        best = max(policies, key=lambda one: one.valid)
        yield (
            f"Best in validation: {best.name}; in the test it closes "
            f"{_closed(outcomes, best):.0%} of the gap."
        )


def losses(outcomes: list[Outcome]) -> Iterator[str]:
    """What is worse than modulo."""
    base = _named(outcomes, MODULO)
    worse = [f"{one.name} ({one.auc - base.auc:+.4f})" for one in outcomes if one.auc < base.auc]
    if worse:
        yield f"Worse than modulo: {', '.join(worse)}."


def smoothed(days) -> np.ndarray:
    """Moving mean [D] of days, those without an AUC left out."""
    days = np.asarray(days)
    width = SMOOTH if len(days) > 4 * SMOOTH else 1
    there = ~np.isnan(days)
    window = np.ones(width)
    counts = np.convolve(there, window, "same")
    sums = np.convolve(np.where(there, days, 0), window, "same")
    return sums / np.where(counts > 0, counts, np.nan)


def picture(done: dict[str, list[Outcome]], path: Path) -> None:
    """A panel a stream: AUC over modulo's, day by day or (in validation) epoch by epoch."""
    panels = max(1, len(done))
    figure = Figure(figsize=(6.5 * panels, 5.5), layout="constrained")
    colours = mpl.colormaps["tab20"].colors
    axes_of = np.ravel(figure.subplots(1, panels))
    for axes, (title, outcomes) in zip(axes_of, done.items(), strict=False):
        axes.set_title(title)
        base, policy = _named(outcomes, MODULO).days, 0
        for one in outcomes:
            if one.name == MODULO:
                continue
            count = min(len(base), len(one.days))
            gain = smoothed(one.days[:count]) - smoothed(base[:count])
            if one.name in (FULL, ORACLE):
                style = {"color": "black", "linestyle": "-" if one.name == FULL else "--"}
            else:
                style = {"color": colours[policy % 20], "linewidth": 1.2}
                policy += 1
            axes.plot(np.arange(1, 1 + count), gain, label=one.name, **style)
        axes.axhline(0, color="#888888", linewidth=1)
        by_epochs = outcomes[0].valid is not None
        axes.set_xlabel("epoch" if by_epochs else "day")
        what = "of the epoch, in validation," if by_epochs else "of the day"
        axes.set_ylabel(f"AUC {what} over {MODULO}'s")
        axes.spines[["top", "right"]].set_visible(False)
    if done:
        handles, labels = axes_of[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(path)
