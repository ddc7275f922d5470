"""Charts of a report: bars and dots in rows, a row a case; drawn by matplotlib."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

COLOURS = {"good": "#0b7a5a", "fair": "#b07a00", "bad": "#c0392b", "goal": "#7a2fb0"}
# Told apart by shape too, for those who don't see the colours.
LOOKS = (
    ("#0062b8", "o"), ("#0b8f6a", "s"), ("#c46f00", "D"), ("#b1489a", "^"),
    ("#c8401c", "P"), ("#4a7f99", "v"), ("#6b6f76", "|"),
)  # fmt: skip
STYLE = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "charts"}


@dataclass(frozen=True)
class Bar:
    """A row with one bar; `kind` is a key of COLOURS."""

    label: str
    value: float
    text: str
    kind: str


@dataclass(frozen=True)
class Line:
    """A vertical line with a label, such as a goal."""

    value: float
    label: str


@dataclass(frozen=True)
class Dots:
    """A row with one mark a series: {series: value}."""

    label: str
    values: dict[str, float]


def number(value: float) -> str:
    """Three digits, without an exponent."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def bars(rows: Sequence[Bar], lines: Sequence[Line], axis: str, log: bool) -> Figure:
    """Horizontal bars with vertical lines; on a logarithmic axis they start at 1."""
    figure, axes = _rows([row.label for row in rows], axis, log)
    start = 1 if log else 0
    drawn = axes.barh(
        range(len(rows)),
        [row.value - start for row in rows],
        left=start,
        height=0.6,
        color=[COLOURS[row.kind] for row in rows],
    )
    axes.bar_label(drawn, [row.text for row in rows], padding=4)
    for place, line in enumerate(lines):
        axes.axvline(line.value, color=COLOURS["goal"], linestyle="--", linewidth=1)
        axes.annotate(
            line.label, (line.value, 1), (0, 3 + 11 * (place % 2)), color=COLOURS["goal"],
            xycoords=("data", "axes fraction"), textcoords="offset points", ha="center",
        )  # fmt: skip
    axes.margins(x=0.12)
    return figure


def dots(rows: Sequence[Dots], series: Mapping[str, int], axis: str) -> Figure:
    """A mark for each series in each row, on a logarithmic axis, with a legend.

    `series` gives each the number of its look, so that it is the same in all charts of a page.
    """
    figure, axes = _rows([row.label for row in rows], axis, log=True)
    for place, row in enumerate(rows):
        axes.hlines(place, min(row.values.values()), max(row.values.values()), color="0.85")
    for name, look in reversed(series.items()):  # the first one comes last, on top
        colour, marker = LOOKS[look % len(LOOKS)]
        found = [(row.values[name], at) for at, row in enumerate(rows) if name in row.values]
        axes.plot(*zip(*found, strict=True), marker, color=colour, label=name, zorder=3)
    figure.legend(loc="outside upper left", ncols=4, frameon=False, reverse=True)
    return figure


def image(figure: Figure, about: str) -> str:
    """The figure as an element that holds it whole, with words for those who don't see it."""
    svg = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    data = base64.b64encode(svg.getvalue().encode()).decode()
    return f'<img class="chart" alt="{escape(about)}" src="data:image/svg+xml;base64,{data}">'


def _rows(labels: Sequence[str], axis: str, log: bool) -> tuple[Figure, Axes]:
    with rc_context(STYLE):
        figure = Figure((9, 1.2 + 0.24 * len(labels)), layout="constrained")
        axes = figure.add_subplot()
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)  # the first row on top
    axes.set_xlabel(axis)
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure, axes
