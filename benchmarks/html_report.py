#!/usr/bin/env python3
"""The results of `lookup.py` as one page with charts: no script, nothing fetched.

    python benchmarks/html_report.py results.json more.json --out report.html

Of several files a later one replaces the cases that it has measured anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import charts
import report
from charts import number
from measure import Result
from workers import LIMIT, PEERS, REFERENCES

Cases = dict[tuple, dict[str, Result]]

STYLE = (Path(__file__).resolve().parent / "report.css").read_text()


def page(documents: Sequence[dict]) -> str:
    """The whole page, from what `lookup.py --json` writes; the last document says where it ran."""
    groups = {group: _cases(documents, "results", group) for group in report.TITLES}
    groups = {group: cases for group, cases in groups.items() if cases}
    results = [result for cases in groups.values() for c in cases.values() for result in c.values()]
    uniform = _cases(documents, "uniform", "forward")
    body = [
        _header(documents),
        _summary(report.summary(results)) if results else "",
        *(_group(group, cases) for group, cases in groups.items()),
        _roofline(groups.get("forward", {})),
        _uniform(uniform),
        _size(documents),
        _machine(documents),
        _missing(documents, [*results, *(r for case in uniform.values() for r in case.values())]),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Embedding lookups, measured</title><style>{STYLE}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _cases(documents: Sequence[dict], key: str, group: str) -> Cases:
    found: Cases = {}
    for document in documents:
        results = [Result.of_record(r) for r in document.get(key) or [] if r["group"] == group]
        found |= report.by_case(results)
    return found


def _label(case: tuple) -> str:
    tables, batch = case
    return f"{tables.label}, {batch.label}"


def _series(cases: Cases, references: bool = False) -> dict[str, int]:
    """Those measured, ours first, and the number of each one's look."""
    measured = {name for case in cases.values() for name, result in case.items() if result.rate}
    peers = [peer.name for peer in PEERS if peer.name not in REFERENCES]
    shown = {name: look for look, name in enumerate([*peers, LIMIT])}
    if not references:
        del shown[LIMIT]
    return {name: look for name, look in shown.items() if name in measured}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _folded(table: str) -> str:
    return f"<details><summary>The same as a table</summary>{table}</details>"


def _figure(chart: str, caption: str, table: str = "") -> str:
    fold = _folded(table) if table else ""
    return f"<figure><figcaption>{escape(caption)}</figcaption>{chart}</figure>{fold}"


def _header(documents: Sequence[dict]) -> str:
    machine = documents[-1]["machine"]
    dates = sorted({document["date"][:10] for document in documents})
    versions: dict[str, str] = {}
    for document in documents:
        for found in document["versions"].values():
            versions |= found
    names = " · ".join(escape(f"{name} {version}") for name, version in versions.items())
    quick = " A quick run: few cases, few steps." if documents[-1].get("quick") else ""
    return (
        "<header><h1>Embedding lookups, measured</h1>"
        f"<p>{escape(' and '.join(dates))}, on {machine['usable_cores']} cores of "
        f"{escape(machine['cpu'])}, {machine['memory_gib']} GiB, {documents[-1]['threads']} "
        f"threads for every library.{quick}</p><p class='versions'>{names}</p>"
        "<p>Whole calls from Python, float32 rows, int64 ids, sums over bags; medians of steps "
        "that take turns on the same ids. A case reads <em>tables x rows x dim, bags x ids a bag"
        "</em>. A ratio above 1 means that merlin_embeddings is faster.</p></header>"
    )


def _summary(summaries: dict[str, dict]) -> str:
    cards, rows = [], []
    for group, entry in summaries.items():
        if "worst" not in entry:
            continue
        mean, least = entry["goal"]
        kind = "met" if entry["geometric_mean"] >= mean and entry["worst"] >= least else "missed"
        cards.append(
            f'<li class="{kind}"><h3>{escape(report.TITLES[group].split(" (")[0])}</h3>'
            f"<p class='figure'>{entry['geometric_mean']:.2f}x</p>"
            f"<p>goal {mean}x; worst {entry['worst']:.2f}x, goal {least}x: "
            f"<strong>{kind}</strong></p></li>"
        )
        rows.append([
            report.TITLES[group], str(entry["compared"]), f"{entry['geometric_mean']:.2f}x",
            f"{mean}x", f"{entry['worst']:.2f}x", f"{least}x", entry["worst_case"],
        ])  # fmt: skip
    head = ["work", "cases", "geometric mean", "goal", "worst", "goal", "worst case"]
    caption = "Times faster than the best peer of each case"
    return (
        f"<section><h2>Against the best peer of each case</h2><ul class='cards'>{''.join(cards)}"
        f"</ul>{_folded(_table(head, rows, caption))}</section>"
    )


def _group(group: str, cases: Cases) -> str:
    return (
        f"<section><h2>{escape(report.TITLES[group])}</h2>"
        f"{_ratios(group, cases)}{_throughput(report.TITLES[group], cases)}</section>"
    )


def _ratios(group: str, cases: Cases) -> str:
    mean, least = report.GOALS[group]
    rows, table = [], []
    for case, members in cases.items():
        best = report.best_peer(members)
        if best is None:
            continue
        kind = "good" if best.ratio >= mean else "fair" if best.ratio >= least else "bad"
        rows.append(charts.Bar(_label(case), best.ratio, f"{best.ratio:.2f}x", kind))
        table.append([_label(case), f"{best.ratio:.2f}x", best.peer])
    if not rows:
        return "<p>No peer does this work.</p>"
    lines = [
        charts.Line(mean, f"goal of the mean {mean}x"),
        charts.Line(least, f"goal of each {least}x"),
    ]
    about = (
        f"{len(rows)} bars, from {min(r.value for r in rows):.2f}x to "
        f"{max(r.value for r in rows):.2f}x; {sum(r.value >= least for r in rows)} reach {least}x."
    )
    title = f"{report.TITLES[group]}: times faster than the best peer"
    chart = charts.image(
        charts.bars(rows, lines, "times faster (logarithmic)", log=True), f"{title}: {about}"
    )
    caption = "Times faster than the best peer of each case (amber: the goal of each case alone)"
    return _figure(chart, caption,
                   _table(["case", "times faster", "best peer"], table, title))  # fmt: skip


def _throughput(title: str, cases: Cases) -> str:
    series = _series(cases)
    rows = [
        charts.Dots(_label(case), {n: members[n].rate for n in series
                                   if n in members and members[n].rate})
        for case, members in cases.items()
    ]  # fmt: skip
    rows = [row for row in rows if row.values]
    if not rows:
        return ""
    caption = "Million lookups a second of each library"
    about = f"{len(rows)} cases; the libraries are {', '.join(series)}. The table has the numbers."
    drawn = charts.dots(rows, series, "million lookups a second (logarithmic)")
    chart = charts.image(drawn, f"{title}: {caption}. {about}")
    table = [
        [row.label, *(number(row.values[n]) if n in row.values else "-" for n in series)]
        for row in rows
    ]
    return _figure(chart, caption, _table(["case", *series], table, f"{title}: {caption}"))


def _roofline(cases: Cases) -> str:
    rows = []
    for case, members in cases.items():
        percent = report.limit_percent(members)
        if percent is not None:
            kind = "good" if percent >= report.LIMIT_GOAL else "fair"
            rows.append(charts.Bar(_label(case), percent, f"{percent:.0f}%", kind))
    if not rows:
        return ""
    goal = charts.Line(report.LIMIT_GOAL, f"goal {report.LIMIT_GOAL:.0f}%")
    title = "Forward: share of the gather limit"
    about = f"{len(rows)} bars, from {min(r.value for r in rows):.0f}% to " \
            f"{max(r.value for r in rows):.0f}%."  # fmt: skip
    drawn = charts.bars(rows, [goal], "percent of the gather limit", log=False)
    chart = charts.image(drawn, f"{title}: {about}")
    table = _table(["case", "percent"], [[r.label, r.text] for r in rows], title)
    return (
        "<section><h2>How near the machine's limit</h2><p>The gather limit sums the same bags in "
        "C++ without a framework around it, in the fastest of all ways tried; it keeps its output "
        "buffer, and pays for no call.</p>"
        + _figure(chart, "Forward pass, percent of the gather limit", table)
        + "</section>"
    )


def _uniform(cases: Cases) -> str:
    series = _series(cases, references=True)
    rows = [
        charts.Dots(f"dim {tables.dim}, {batch.hotness} a bag",
                    {n: members[n].rate for n in series if n in members and members[n].rate})
        for (tables, batch), members in cases.items()
    ]  # fmt: skip
    rows = [row for row in rows if row.values]
    if not rows:
        return ""
    gib = next(iter(cases))[0].nbytes / 2**30
    title = f"One table of {gib:.2g} GiB, uniform ids: million rows a second"
    about = f"{len(rows)} cases; {', '.join(series)}. The table has the numbers."
    drawn = charts.dots(rows, series, "million rows a second (logarithmic)")
    chart = charts.image(drawn, f"{title}: {about}")
    table = [
        [row.label, *(number(row.values[n]) if n in row.values else "-" for n in series)]
        for row in rows
    ]
    return (
        f"<section><h2>One table of {gib:.2g} GiB, uniform ids</h2><p>No cache helps: every row "
        "comes from memory, and what counts is how many reads are under way at once.</p>"
        + _figure(chart, "Forward pass", _table(["case", *series], table, title))
        + "</section>"
    )


def _size(documents: Sequence[dict]) -> str:
    size = next((d["adam_table_size"] for d in documents[::-1] if d.get("adam_table_size")), None)
    if size is None:
        return ""
    rows = [
        [f"{step['peer']}, {step['rows']:,} rows",
         number(step["median_ms"]) if step["median_ms"] else "-", step.get("note", "")]
        for step in size["steps"]
    ]  # fmt: skip
    title = f"One table of dim {size['dim']}, batch {size['batch']}: an Adam step"
    return (
        "<section><h2>Adam and the table's size</h2>"
        f"{_table(['', 'median ms', ''], rows, title)}</section>"
    )


def _machine(documents: Sequence[dict]) -> str:
    machine = documents[-1]["machine"]
    facts = {
        "processor": f"{machine['cpu']}, {machine['cores']} cores, "
                     f"{machine['usable_cores']} usable",
        "instruction sets": ", ".join(machine["instruction_sets"]),
        "caches": "; ".join(f"{name} {size}" for name, size in machine["caches"].items()),
        "memory": f"{machine['memory_gib']} GiB",
        "kernel": machine["kernel"],
        "huge pages": machine["transparent_huge_pages"],
        "Python": machine["python"],
    }  # fmt: skip
    for document in documents:
        others = document["machine"].get("others_cpu_percent")
        note = "still running" if others is None else f"others used {others}% of the machine"
        facts[f"run of {document['date']}"] = f"{document['seconds']:.0f} s; {note}"
    return (
        "<section><h2>Where it ran</h2>"
        f"{_table(['', ''], list(map(list, facts.items())), 'The machine and the runs')}</section>"
    )


def _missing(documents: Sequence[dict], results: Sequence[Result]) -> str:
    rows = {(peer, reason): "all" for d in documents for peer, reason in d["left_out"].items()}
    for result in results:
        if result.skipped:
            where = f"{result.group}: {_label((result.tables, result.batch))}"
            key = (result.peer, result.skipped)
            rows[key] = f"{rows[key]}; {where}" if key in rows else where
    if not rows:
        return ""
    table = [[peer, reason, where] for (peer, reason), where in rows.items()]
    return (
        "<section><h2>What is missing</h2>"
        f"{_folded(_table(['peer', 'why', 'cases'], table, 'Left out or skipped'))}</section>"
    )


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", type=Path, help="files that lookup.py --json wrote")
    parser.add_argument("--out", type=Path, default=Path("report.html"))
    options = parser.parse_args(given)
    documents = []
    for path in options.results:
        document = json.loads(path.read_text())
        if document.get("benchmark") != "lookup":
            parser.error(f"{path} is no file of lookup.py: its 'benchmark' isn't 'lookup'")
        documents.append(document)
    options.out.write_text(page(documents))
    return 0


if __name__ == "__main__":
    sys.exit(main())
