"""Charts as SVG text: bars and dots in rows, a row a case.

Colours come from the page's style sheet, by class, so that dark pages work; every mark carries its
value as a tooltip, and every chart a title and a description for those who don't see it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

ROW, BAR = 22, 14  # heights
LEFT, RIGHT, TOP, BOTTOM = 190, 70, 34, 34
WIDTH = 860
MARKS = ("circle", "square", "diamond", "triangle", "cross", "ring", "stroke")
_ids = itertools.count()


@dataclass(frozen=True)
class Scale:
    """Values to places on the x axis, linear or logarithmic."""

    low: float
    high: float
    log: bool

    @classmethod
    def around(cls, values: Sequence[float], log: bool) -> Scale:
        """One that all values fit on: from 0, or between round numbers."""
        if not log:
            return cls(0, max(values) * 1.05, log)
        steps = [m * 10.0**e for e in range(-6, 7) for m in (1, 2, 5)]
        low = max((s for s in steps if s <= min(values)), default=steps[0])
        high = min((s for s in steps if s >= max(values)), default=steps[-1])
        return cls(low, high if high > low else low * 10, log)

    def place(self, value: float) -> float:
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = value / self.high
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def ticks(self) -> list[float]:
        if not self.log:
            step = 10 ** math.floor(math.log10(self.high))
            step = next(s for s in (step / 5, step / 2, step, 2 * step) if self.high / s <= 8)
            return [step * i for i in range(int(self.high / step) + 1)]
        decades = math.log10(self.high / self.low)
        steps = (1, 2, 5) if decades <= 3 else (1,)
        found = [m * 10.0**e for e in range(-6, 7) for m in steps]
        return [t for t in found if self.low * 0.999 <= t <= self.high * 1.001]


@dataclass(frozen=True)
class Bar:
    """A row with one bar; `kind` is a class of the style sheet, `note` its tooltip."""

    label: str
    value: float
    text: str
    kind: str
    note: str = ""


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


def bars(
    title: str, about: str, rows: Sequence[Bar], lines: Sequence[Line], axis: str, log: bool
) -> str:
    """Horizontal bars with vertical lines; on a logarithmic axis they start at 1."""
    values = [row.value for row in rows] + [line.value for line in lines]
    scale = Scale.around([*values, 1] if log else values, log)
    start = scale.place(1) if log else LEFT
    marks = []
    for at, row in enumerate(rows):
        end, top = scale.place(row.value), TOP + at * ROW + (ROW - BAR) / 2
        left, width = min(start, end), max(abs(end - start), 1)
        marks.append(
            f'<g><title>{escape(row.note or row.text)}</title><rect class="{row.kind}" '
            f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{BAR}" rx="2"/>'
            f'<text class="value" x="{max(start, end) + 5:.1f}" y="{top + 11:.1f}">'
            f"{escape(row.text)}</text></g>"
        )
    return _frame(title, about, [row.label for row in rows], scale, axis, lines, marks)


def dots(
    title: str, about: str, rows: Sequence[Dots], series: Mapping[str, int], axis: str, unit: str
) -> str:
    """A mark for each series in each row, on a logarithmic axis, with a legend.

    `series` gives each the number of its look, so that it is the same in all charts of a page.
    """
    scale = Scale.around([value for row in rows for value in row.values.values()], log=True)
    marks = []
    for at, row in enumerate(rows):
        y = TOP + at * ROW + ROW / 2
        found = [scale.place(value) for value in row.values.values()]
        if found:
            marks.append(f'<path class="range" d="M{min(found):.1f} {y:.1f}H{max(found):.1f}"/>')
        for name in reversed(series):  # the first one comes last, on top
            if name in row.values:
                value = row.values[name]
                note = escape(f"{row.label}: {name} {number(value)} {unit}")
                marks.append(
                    f"<g><title>{note}</title>{_mark(series[name], scale.place(value), y)}</g>"
                )
    return legend(series) + _frame(title, about, [r.label for r in rows], scale, axis, (), marks)


def legend(series: Mapping[str, int]) -> str:
    """The marks and what they stand for."""
    items = (
        f'<li><svg width="16" height="16" aria-hidden="true">{_mark(index, 8, 8)}</svg>'
        f"{escape(name)}</li>"
        for name, index in series.items()
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _mark(index: int, x: float, y: float) -> str:
    kind = f'class="series s{index}"'
    shape = MARKS[index % len(MARKS)]
    if shape == "circle":
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="5.5"/>'
    if shape == "ring":
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="4" fill-opacity="0.15"/>'
    path = {
        "square": "m-4-4h8v8h-8z",
        "diamond": "m0-5.5l5.5 5.5l-5.5 5.5l-5.5-5.5z",
        "triangle": "m0-5l5 9h-10z",
        "cross": "m-4.5-1.5h3v-3h3v3h3v3h-3v3h-3v-3h-3z",
        "stroke": "m-1.5-8h3v16h-3z",
    }[shape]
    return f'<path {kind} d="M{x:.1f} {y:.1f}{path}"/>'


def _frame(
    title: str, about: str, labels: Sequence[str], scale: Scale, axis: str, lines: Sequence[Line],
    marks: Sequence[str],
) -> str:  # fmt: skip
    bottom = TOP + len(labels) * ROW
    number_of_chart = next(_ids)
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {bottom + BOTTOM}" role="img" '
        f'aria-labelledby="t{number_of_chart} d{number_of_chart}">',
        f'<title id="t{number_of_chart}">{escape(title)}</title>',
        f'<desc id="d{number_of_chart}">{escape(about)}</desc>',
    ]
    for tick in scale.ticks():
        x = scale.place(tick)
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 14}">{number(tick)}</text>')
    for at, label in enumerate(labels):
        y = TOP + at * ROW + ROW / 2 + 4
        parts.append(f'<text class="case" x="{LEFT - 8}" y="{y:.1f}">{escape(label)}</text>')
    for at, line in enumerate(lines):
        x, y = scale.place(line.value), TOP - 6 - 13 * (at % 2)
        parts.append(f'<path class="goal" d="M{x:.1f} {y + 2}V{bottom}"/>')
        parts.append(f'<text class="goal" x="{x:.1f}" y="{y}">{escape(line.label)}</text>')
    parts += marks
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="axis" x="{middle}" y="{bottom + 30}">{escape(axis)}</text></svg>')
    return "\n".join(parts)
