#!/usr/bin/env python3
"""Forward and training steps of embedding tables: ours beside its peers, on the same ids.

    python benchmarks/lookup.py                        every case, about a quarter of an hour
    QUICK=1 python benchmarks/lookup.py                a few cases, within a minute
    python benchmarks/lookup.py --only forward,sgd --dims 64 --batches 4096 --hotness 10
    python benchmarks/lookup.py --json results.json    all that was measured, and on what

Every peer lives in its own process with the same number of threads and takes turns with the others
on the same ids (measure.py); what is compared are medians of whole steps. A training step is
forward, backward from a fixed gradient of the output, and the optimizer's update.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import report
from cases import GROUPS, Batch, TableSet, ids_file
from machine import CpuUsage, describe
from measure import Effort, Result, measure_tables
from rich.console import Console
from semantics import check
from table_size import measure_size
from workers import GIB, PEERS, ROOT, Interpreters, Peer, Pool, available_bytes

BUSY_PERCENT = 5.0
RESERVE_BYTES = int(1.5 * GIB)  # left to the system and the ids
FULL = {
    "only": ",".join(GROUPS),
    "tables": "26x100000,1x10000000",
    "dims": "16,64,128",
    "batches": "4096,16384",
    "hotness": "1,10",
}
QUICK = {
    "only": "forward,adagrad",
    "tables": "26x100000",
    "dims": "16",
    "batches": "4096",
    "hotness": "1,10",
}


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _table_shapes(text: str) -> list[tuple[int, int]]:
    return [(int(t), int(r)) for t, r in (part.split("x") for part in text.split(","))]


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    quick = os.environ.get("QUICK", "0") not in ("", "0")
    default = QUICK if quick else FULL
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [peer.name for peer in PEERS]
    parser.add_argument("--only", default=default["only"], help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--peers", default=",".join(names), help=f"of {', '.join(names)}")
    parser.add_argument("--tables", default=default["tables"], help="tables x rows, comma between")
    parser.add_argument("--dims", default=default["dims"])
    parser.add_argument("--batches", default=default["batches"])
    parser.add_argument("--hotness", default=default["hotness"])
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--seconds", type=float, default=0.05 if quick else 0.3,
                        help="of timed steps, each peer in each case")  # fmt: skip
    parser.add_argument("--size-rows", default="" if quick else "10000000,1000000",
                        help="rows of Adam's large and small table; empty: leave out")  # fmt: skip
    parser.add_argument("--torch-python", default=str(ROOT / ".venv-peers/bin/python"),
                        help="python of the environment with torch and fbgemm-gpu-cpu")  # fmt: skip
    parser.add_argument("--json", type=Path, help="file to write")
    parsed = parser.parse_args(given)
    parsed.quick = quick
    parsed.effort = Effort(parsed.seconds, 3, 3) if quick else Effort(parsed.seconds)
    parsed.groups = parsed.only.split(",")
    for chosen, known in ((parsed.groups, GROUPS), (parsed.peers.split(","), names)):
        unknown = set(chosen) - set(known)
        if unknown:
            parser.error(f"{', '.join(sorted(unknown))}: not of {', '.join(known)}")
    return parsed


def _absent(peers: list[Peer], interpreters: Interpreters) -> dict[str, str]:
    if interpreters.torch is not None:
        return {}
    reason = "no environment with torch (benchmarks/README.md says how to make one)"
    return {peer.name: reason for peer in peers if peer.torch}


def run(options: argparse.Namespace, console: Console) -> dict:
    started = time.time()
    machine = describe()
    usage = CpuUsage()
    torch = options.torch_python if Path(options.torch_python).exists() else None
    interpreters = Interpreters(torch=torch)
    wanted = [peer for peer in PEERS if peer.name in options.peers.split(",")]
    absent = _absent(wanted, interpreters)
    peers = [peer for peer in wanted if peer.name not in absent]
    batches = [Batch(b, h) for h in _integers(options.hotness) for b in _integers(options.batches)]
    results: list[Result] = []
    size = None
    pool = Pool(interpreters, options.threads)
    verdicts: dict[str, dict] = {}

    def save(others: float | None = None) -> dict:
        """Writes what there is so far: a run that is stopped keeps it."""
        document = {
            "benchmark": "lookup",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": round(time.time() - started, 1),
            "quick": options.quick,
            "threads": options.threads,
            "effort": asdict(options.effort),
            "machine": machine | {"others_cpu_percent": others},
            "versions": pool.versions,
            "checks": verdicts,
            "left_out": absent,
            "summary": report.summary(results),
            "results": [result.record() for result in results],
            "adam_table_size": size,
        }
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(document, indent=1) + "\n")
        return document

    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        folder = Path(name)
        console.print("Checking that every peer computes the same sums and steps ...")
        verdicts |= check(pool, peers, options.groups, folder)
        wrong = {peer for peer, v in verdicts.items() if set(v.values()) - {"ok"}}
        peers = [peer for peer in peers if peer.name not in wrong]
        absent |= {peer: f"fails its check: {verdicts[peer]}" for peer in sorted(wrong)}
        for peer, reason in absent.items():
            console.print(f"[yellow]left out[/] {peer}: {reason}", highlight=False)
        try:
            for tables, rows in _table_shapes(options.tables):
                files = {batch: ids_file(folder, tables, rows, batch) for batch in batches}
                for dim in _integers(options.dims):
                    pool.close_tables()
                    budget = available_bytes() - RESERVE_BYTES
                    tables_set = TableSet(tables, rows, dim)

                    def progress(group: str, label: str = tables_set.label) -> None:
                        spent = f"[dim]{time.time() - started:5.0f} s[/]"
                        console.print(f"{spent} {label}, {group}", highlight=False)

                    results += measure_tables(
                        pool, peers, options.groups, tables_set, files, budget, options.effort,
                        progress,
                    )  # fmt: skip
                    save()
            if options.size_rows and "adam" in options.groups:
                pool.close()
                large, small = (TableSet(1, rows, 16) for rows in _integers(options.size_rows))
                size = measure_size(
                    pool, peers, large, small, Batch(4096, 1), folder,
                    available_bytes() - RESERVE_BYTES, options.effort,
                )  # fmt: skip
        finally:
            pool.close()
    others = usage.others_percent()
    report.show(console, results, size)
    if others > BUSY_PERCENT:
        console.print(f"[red]Other processes used {others:.0f}% of the machine meanwhile: the "
                      "figures say little about peers whose threads spin.[/]")  # fmt: skip
    return save(round(others, 1))


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    document = run(options, Console(width=None if sys.stdout.isatty() else 150))
    failed = any(set(verdict.values()) - {"ok"} for verdict in document["checks"].values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
