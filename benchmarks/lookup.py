#!/usr/bin/env python3
"""Forward and training steps of embedding tables: ours beside its peers, on the same ids.

    python benchmarks/lookup.py                        every case, within half an hour
    QUICK=1 python benchmarks/lookup.py                a few cases, within a minute
    python benchmarks/lookup.py --only forward,sgd --dims 64 --batches 4096 --hotness 10
    python benchmarks/lookup.py --json results.json    all that was measured, and on what
    python benchmarks/lookup.py --html report.html     the same as a page with charts

Every peer lives in its own process with the same number of threads and takes turns with the others
on the same ids (measure.py); what is compared are medians of whole steps. A training step is
forward, backward from a fixed gradient of the output, and the optimizer's update.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import html_report
import report
from cases import GROUPS, Batch, TableSet, ids_file
from machine import CpuUsage, describe
from measure import Effort, Result, measure_tables
from rich.console import Console
from semantics import check
from table_size import measure_size
from uniform import LOOKUPS, measure_uniform
from workers import GIB, PEERS, ROOT, Interpreters, Peer, Pool, available_bytes

BUSY_PERCENT = 5.0
RESERVE_BYTES = int(1.5 * GIB)  # left to the system and the ids
FOLDER = "merlin-benchmark-"  # and the process's id: where its ids and tables of checks are
FULL = {
    "only": ",".join(GROUPS),
    "tables": "26x100000,1x10000000",
    "dims": "16,64,128",
    "batches": "4096,16384",
    "hotness": "1,10",
    "seconds": 0.3,
    "size_rows": "10000000,1000000",
    "uniform_dims": "16,64,128",
}
QUICK = {
    "only": "forward,adagrad",
    "tables": "26x100000",
    "dims": "16",
    "batches": "4096",
    "hotness": "1,10",
    "seconds": 0.05,
    "size_rows": "",
    "uniform_dims": "",
}


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


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
    parser.add_argument("--seconds", type=float, default=default["seconds"],
                        help="of timed steps, each peer in each case")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=28,
                        help="after which the cases that are left are skipped")  # fmt: skip
    parser.add_argument("--size-rows", default=default["size_rows"],
                        help="rows of Adam's large and small table; empty: leave out")  # fmt: skip
    parser.add_argument("--uniform-dims", default=default["uniform_dims"],
                        help="of one large table with uniform ids; empty: leave out")  # fmt: skip
    parser.add_argument("--uniform-gib", type=float, default=4, help="of that table")
    parser.add_argument("--uniform-lookups", type=int, default=LOOKUPS, help="a batch, at least")
    parser.add_argument("--torch-python", default=str(ROOT / ".venv-peers/bin/python"),
                        help="python of the environment with torch and fbgemm-gpu-cpu")  # fmt: skip
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--html", type=Path, help="page to write")
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


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder in memory, where it can be; those of runs that were killed go first."""
    shared = Path("/dev/shm")
    base = shared if shared.is_dir() else Path(tempfile.gettempdir())
    for old in base.glob(f"{FOLDER}*-*"):
        if not Path("/proc", old.name.removeprefix(FOLDER).split("-")[0]).exists():
            shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{FOLDER}{os.getpid()}-", dir=base) as name:
        yield Path(name)


class Run:
    """One run of the benchmark: what it measures, and what it has found so far."""

    def __init__(self, options: argparse.Namespace, console: Console) -> None:
        self.options, self.console = options, console
        self.started = time.time()
        self.machine, self.usage = describe(), CpuUsage()
        torch = options.torch_python if Path(options.torch_python).exists() else None
        interpreters = Interpreters(torch=torch)
        self.pool = Pool(interpreters, options.threads)
        wanted = [peer for peer in PEERS if peer.name in options.peers.split(",")]
        self.absent = _absent(wanted, interpreters)
        self.peers = [peer for peer in wanted if peer.name not in self.absent]
        self.verdicts: dict[str, dict] = {}
        self.results: list[Result] = []
        self.uniform: list[Result] = []
        self.size: dict | None = None

    def measure(self) -> None:
        """The short extra cases come first: when the time is up, they are there."""
        with shared_folder() as folder:
            try:
                self._check(folder)
                self._measure_size(folder)
                self._measure_uniform(folder)
                self._measure_tables(folder)
            except BaseException:  # Ctrl-C and SIGTERM too
                self.pool.kill()
                raise
            self.pool.close()

    def _check(self, folder: Path) -> None:
        self.console.print("Checking that every peer computes the same sums and steps ...")
        self.verdicts |= check(self.pool, self.peers, self.options.groups, folder)
        wrong = {peer for peer, v in self.verdicts.items() if set(v.values()) - {"ok"}}
        self.peers = [peer for peer in self.peers if peer.name not in wrong]
        self.absent |= {peer: f"fails its check: {self.verdicts[peer]}" for peer in sorted(wrong)}
        for peer, reason in self.absent.items():
            self.console.print(f"[yellow]left out[/] {peer}: {reason}", highlight=False)

    def _measure_size(self, folder: Path) -> None:
        sizes = _integers(self.options.size_rows)
        if not sizes or "adam" not in self.options.groups:
            return
        self._say("Adam and the table's size")
        large, small = (TableSet(1, rows, 16) for rows in sizes)
        self.size = measure_size(
            self.pool, self.peers, large, small, Batch(4096, 1), folder, self._budget(),
            self.options.effort,
        )  # fmt: skip
        self.save()

    def _measure_uniform(self, folder: Path) -> None:
        dims = _integers(self.options.uniform_dims)
        if not dims or "forward" not in self.options.groups:
            return
        self._say("one large table, uniform ids")
        self.uniform = measure_uniform(
            self.pool, self.peers, int(self.options.uniform_gib * GIB), dims,
            self.options.uniform_lookups, folder, self._budget, self.options.effort,
            lambda group: None, self._time_up,
        )  # fmt: skip
        self.save()

    def _measure_tables(self, folder: Path) -> None:
        options = self.options
        hotness, sizes = _integers(options.hotness), _integers(options.batches)
        batches = [Batch(size, h) for h in hotness for size in sizes]
        for tables, rows in _table_shapes(options.tables):
            files = {batch: ids_file(folder, tables, rows, batch) for batch in batches}
            for dim in _integers(options.dims):
                self.pool.close_tables()
                shape = TableSet(tables, rows, dim)

                def progress(group: str, label: str = shape.label) -> None:
                    self._say(f"{label}, {group}")

                self.results += measure_tables(
                    self.pool, self.peers, options.groups, shape, files, self._budget(),
                    options.effort, progress, self._time_up,
                )  # fmt: skip
                self.save()

    def _budget(self) -> int:
        return available_bytes() - RESERVE_BYTES

    def _time_up(self) -> bool:
        return time.time() - self.started > self.options.minutes * 60

    def _say(self, what: str) -> None:
        spent = f"[dim]{time.time() - self.started:5.0f} s[/]"
        self.console.print(f"{spent} {what}", highlight=False)

    def save(self, others: float | None = None) -> dict:
        """Writes what there is so far: a run that is stopped keeps it."""
        document = {
            "benchmark": "lookup",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": round(time.time() - self.started, 1),
            "quick": self.options.quick,
            "threads": self.options.threads,
            "effort": asdict(self.options.effort),
            "machine": self.machine | {"others_cpu_percent": others},
            "versions": self.pool.versions,
            "checks": self.verdicts,
            "left_out": self.absent,
            "summary": report.summary(self.results),
            "results": [result.record() for result in self.results],
            "uniform": [result.record() for result in self.uniform],
            "adam_table_size": self.size,
        }
        for path, text in (
            (self.options.json, lambda: json.dumps(document, indent=1) + "\n"),
            (self.options.html, lambda: html_report.page([document])),
        ):
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text())
        return document

    def finish(self) -> dict:
        """Shows the results; the document."""
        others = self.usage.others_percent()
        report.show(self.console, self.results, self.uniform, self.size)
        if others > BUSY_PERCENT:
            self.console.print(
                f"[red]Other processes used {others:.0f}% of the machine meanwhile: the figures "
                "say little about peers whose threads spin.[/]"
            )
        return self.save(round(others, 1))


def main(given: list[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = arguments(given)
    run = Run(options, Console(width=None if sys.stdout.isatty() else 150))
    try:
        run.measure()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    document = run.finish()
    for path in (options.json, options.html):
        if path:
            run.console.print(f"written: {path}", highlight=False)
    failed = any(set(verdict.values()) - {"ok"} for verdict in document["checks"].values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
