"""What a person sees of the maps: a table a stream, and a picture over time."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

SMOOTH = 7  # days that a point is the mean of, where there are many


def gap_closed(auc: float, modulo: float, oracle: float) -> float:
    """Where `auc` stands between the two: 0 is modulo's, 1 the oracle's."""
    return (auc - modulo) / (oracle - modulo)


def table(runs: list, title: str, modulo: str, oracle: str) -> Table:
    """AUC, rows, bytes and the gap closed, a row a map."""
    reached = {run.name: run.auc for run in runs}
    low, high = reached[modulo], reached[oracle]
    result = Table(title=title, title_justify="left")
    result.add_column("rows of ids")
    for heading in ("AUC", "gap closed", "rows", "kB", "lookups with own row", "s"):
        result.add_column(heading, justify="right")
    for run in runs:
        closed = "-" if run.name in (modulo, oracle) else f"{gap_closed(run.auc, low, high):.0%}"
        result.add_row(
            run.name,
            f"{run.auc:.4f}",
            closed,
            f"{run.rows:,}",
            f"{run.bytes / 1e3:,.0f}",
            run.known,
            f"{run.seconds:.0f}",
        )
    return result


def smoothed(days: list[float]) -> np.ndarray:
    """Moving mean [D] of a run's days, those without an AUC left out."""
    days = np.asarray(days)
    width = SMOOTH if len(days) > 4 * SMOOTH else 1
    there = ~np.isnan(days)
    window = np.ones(width)
    counts = np.convolve(there, window, "same")
    sums = np.convolve(np.where(there, days, 0), window, "same")
    return sums / np.where(counts > 0, counts, np.nan)


def picture(done: dict[str, list], modulo: str, path: Path) -> None:
    """A panel a stream: AUC over modulo's by day, or a bar a map where there are no days."""
    figure = Figure(figsize=(6 * max(1, len(done)), 5), layout="constrained")
    for axes, (title, runs) in zip(
        np.ravel(figure.subplots(1, max(1, len(done)))), done.items(), strict=False
    ):
        axes.set_title(title)
        base = next(run for run in runs if run.name == modulo)
        if base.days:
            for at, run in enumerate(runs):
                if run is not base:
                    gain = smoothed(run.days) - smoothed(base.days)
                    style = {"color": f"C{at % 10}", "linestyle": "-" if at < 10 else "--"}
                    axes.plot(np.arange(1, 1 + len(gain)), gain, label=run.name, **style)
            axes.axhline(0, color="#888888", linewidth=1)
            axes.set_xlabel("day")
            axes.set_ylabel(f"AUC of the day over {modulo}'s")
            axes.legend(frameon=False, fontsize=8)
        else:
            axes.barh([run.name for run in runs][::-1], [run.auc for run in runs][::-1])
            axes.set_xlim(min(run.auc for run in runs) - 0.02)
            axes.set_xlabel("test AUC")
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
