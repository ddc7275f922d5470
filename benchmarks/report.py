"""The results as a table a group, their geometric means and worst cases."""

from __future__ import annotations

import math
from collections import defaultdict

from measure import Result
from rich.console import Console
from rich.table import Table
from workers import LIMIT, OURS, REFERENCES

TITLES = {
    "forward": "Forward",
    "sgd": "SGD step",
    "rowwise_adagrad": "Row-wise Adagrad step",
    "adagrad": "Adagrad step",
    "adam": "Adam step (ours and torch lazy, Keras dense)",
}
# (geometric mean, worst case) to reach against the best peer of each case
GOALS = {
    "forward": (1.3, 1.0),
    "sgd": (2.0, 1.5),
    "rowwise_adagrad": (1.5, 1.0),
    "adagrad": (3.0, 2.0),
    "adam": (4.0, 3.0),
}
LIMIT_GOAL = 70.0  # percent of the gather limit


def by_case(results: list[Result]) -> dict[tuple, dict[str, Result]]:
    """{(table set, batch): {peer: result}}; of several waves, ours is that of the first."""
    cases: dict[tuple, dict[str, Result]] = defaultdict(dict)
    for result in results:
        cases[result.tables, result.batch].setdefault(result.peer, result)
    return cases


def best_peer(case: dict[str, Result]) -> Result | None:
    """The peer against which ours is least ahead."""
    peers = [r for r in case.values() if r.peer not in (OURS, *REFERENCES) and r.ratio is not None]
    return min(peers, key=lambda r: r.ratio) if peers else None


def limit_percent(case: dict[str, Result]) -> float | None:
    """Ours in percent of the machine's gather limit."""
    limit = case.get(LIMIT)
    return 100 * limit.ratio if limit is not None and limit.ratio is not None else None


def summary(results: list[Result]) -> dict[str, dict]:
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.group].append(result)
    summaries = {}
    for group, members in groups.items():
        cases = by_case(members)
        found = [(key, best) for key, case in cases.items() if (best := best_peer(case))]
        percents = [p for case in cases.values() if (p := limit_percent(case)) is not None]
        entry: dict = {"cases": len(cases), "compared": len(found), "goal": GOALS[group]}
        if found:
            ratios = [best.ratio for _, best in found]
            (tables, batch), worst = min(found, key=lambda item: item[1].ratio)
            entry["geometric_mean"] = math.exp(sum(map(math.log, ratios)) / len(ratios))
            entry["worst"] = worst.ratio
            entry["worst_case"] = f"{tables.label}, {batch.label}, against {worst.peer}"
        if percents:
            entry["gather_limit_percent"] = {
                "geometric_mean": math.exp(sum(map(math.log, percents)) / len(percents)),
                "worst": min(percents),
                "goal": LIMIT_GOAL,
            }
        summaries[group] = entry
    return summaries


def _ms(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    if result.median_ms is None:
        return "[dim]skipped[/]"
    if result.ratio is None or result.peer in (OURS, *REFERENCES):
        return _ms(result.median_ms)
    return f"{_ms(result.median_ms)} [dim]{result.ratio:.2f}x[/]"


def _group_table(group: str, cases: dict[tuple, dict[str, Result]], peers: list[str]) -> Table:
    table = Table(title=f"{TITLES[group]}: median ms, and how many times faster ours is")
    table.add_column("tables x rows x dim")
    table.add_column("batch x hotness")
    for peer in peers:
        table.add_column(peer, justify="right")
    table.add_column("best peer", justify="right")
    if LIMIT in peers:
        table.add_column("% of limit", justify="right")
    for (tables, batch), case in cases.items():
        best = best_peer(case)
        colour = "green" if best is not None and best.ratio >= GOALS[group][1] else "red"
        cells = [tables.label, batch.label, *(_cell(case.get(peer)) for peer in peers)]
        cells.append(f"[{colour}]{best.ratio:.2f}x[/]" if best is not None else "-")
        if LIMIT in peers:
            percent = limit_percent(case)
            cells.append("-" if percent is None else f"{percent:.0f}")
        table.add_row(*cells)
    return table


def _summary_table(summaries: dict[str, dict]) -> Table:
    table = Table(title="Ours against the best peer of each case")
    for column in ("group", "geometric mean", "goal", "worst", "goal", "worst case", "% of limit"):
        table.add_column(column)
    for group, entry in summaries.items():
        mean, least = entry["goal"]
        limit = entry.get("gather_limit_percent")
        percent = f"{limit['geometric_mean']:.0f} (worst {limit['worst']:.0f})" if limit else ""
        if "worst" not in entry:
            table.add_row(group, "-", f"{mean}x", "-", f"{least}x", "", percent)
            continue
        colours = ["green" if ok else "red" for ok in
                   (entry["geometric_mean"] >= mean, entry["worst"] >= least)]  # fmt: skip
        table.add_row(
            group,
            f"[{colours[0]}]{entry['geometric_mean']:.2f}x[/]",
            f"{mean}x",
            f"[{colours[1]}]{entry['worst']:.2f}x[/]",
            f"{least}x",
            entry["worst_case"],
            percent,
        )
    return table


def _size_table(size: dict) -> Table:
    table = Table(title=f"Adam and the table's size: batch {size['batch']}")
    for column in ("", "rows", "median ms", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    for entry in size["steps"]:
        ms = "skipped" if entry["median_ms"] is None else _ms(entry["median_ms"])
        table.add_row(entry["peer"], f"{entry['rows']:,}", ms, entry.get("note", ""))
    return table


def _uniform_table(results: list[Result]) -> Table:
    gib = results[0].tables.nbytes / 2**30
    table = Table(title=f"One table of {gib:.2g} GiB, uniform ids: million rows a second")
    peers = list(dict.fromkeys(result.peer for result in results))
    table.add_column("dim")
    table.add_column("lookups a bag")
    for peer in peers:
        table.add_column(peer, justify="right")
    table.add_column("% of limit", justify="right")
    for (tables, batch), case in by_case(results).items():
        rates = [case[peer].rate if peer in case else None for peer in peers]
        percent = limit_percent(case)
        table.add_row(
            str(tables.dim),
            str(batch.hotness),
            *("-" if rate is None else f"{rate:.1f}" for rate in rates),
            "-" if percent is None else f"{percent:.0f}",
        )
    return table


def show(console: Console, results: list[Result], uniform: list[Result], size: dict | None) -> None:
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.group].append(result)
    for group, members in groups.items():
        names = list(dict.fromkeys(result.peer for result in members))
        order = [OURS, *(n for n in names if n not in (OURS, *REFERENCES)), *REFERENCES]
        console.print(_group_table(group, by_case(members), [n for n in order if n in names]))
    if uniform:
        console.print(_uniform_table(uniform))
    if size:
        console.print(_size_table(size))
    if groups:
        console.print(_summary_table(summary(results)))
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for r in [*results, *uniform]:
        if r.skipped:
            reasons[r.peer, r.skipped].append(f"{r.group} {r.tables.label} {r.batch.label}")
    for (peer, reason), places in reasons.items():
        where = places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"
        console.print(f"[yellow]skipped[/] {peer}: {reason} ({where})", highlight=False)
