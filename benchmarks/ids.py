"""Id maps side by side: ids/s and how long the slow steps take.

    python benchmarks/ids.py                       # all cases, in a quarter of an hour
    QUICK=1 python benchmarks/ids.py               # one million rows, overfull, Zipf
    python benchmarks/ids.py --capacities 1 --full overfull --laws zipf --json ids.json

A step takes 65,536 ids. In training, new ids may get rows and others may lose theirs; "find"
changes nothing, as in evaluation and serving. Each map runs in a process of its own, all take
turns; the map that never evicts is ours, as full as the others, so that its slow steps are the
machine's. A map is filled once for each capacity and fullness, and goes from one law to the next
as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from ids_cases import BATCH, EXPONENTS, FULLNESS, Case, first, stream
from lookup import ROOT, shared_folder
from machine import CpuUsage, describe
from rich.console import Console
from rich.table import Table
from workers import Interpreters, Peer, PeerError, Worker

GROUPS = ("train", "find")
CONTROL = "ours, never evicts"
FIRST = "ours, LFU"
MCH = "torchrec MCH"
STREAM_STEPS = 64


def _peer(name: str, adapter: str, groups: str, torch: bool = False) -> Peer:
    return Peer(name, adapter, dict.fromkeys(groups.split(), 1.0), 1, torch)


PEERS = (
    _peer(FIRST, "ids_merlin:Lfu", "train find"),
    _peer(CONTROL, "ids_merlin:Control", "train"),
    _peer("ours, LFU, admitted at 2", "ids_merlin:LfuAdmission", "train"),
    _peer("ours, LRU", "ids_merlin:Lru", "train"),
    _peer("ours, Dynamic", "ids_merlin:Dynamic", "train find"),
    _peer("ours, modulo", "ids_merlin:Modulo", "train find"),
    _peer(f"{MCH}, LFU", "ids_torchrec:MchLfu", "train find", torch=True),
    _peer(f"{MCH}, LRU", "ids_torchrec:MchLru", "train", torch=True),
    _peer(f"{MCH}, distance LFU", "ids_torchrec:MchDistanceLfu", "train", torch=True),
    _peer("torchrec HashZch, empty", "ids_torchrec:HashZch", "train find", torch=True),
    _peer("tf DenseHashTable", "ids_tensorflow:DenseHashTable", "train find"),
    _peer("tf MutableHashTable", "ids_tensorflow:MutableHashTable", "train find"),
    _peer("tf StaticVocabularyTable", "ids_tensorflow:StaticVocabularyTable", "find"),
    _peer("Keras IntegerLookup", "ids_tensorflow:IntegerLookup", "find"),
    _peer("tf remainder", "ids_tensorflow:Remainder", "train find"),
)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    quick = os.environ.get("QUICK", "0") not in ("", "0")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--capacities", default="1" if quick else "1,10", help="million rows")
    parser.add_argument("--full", default="overfull" if quick else ",".join(FULLNESS))
    parser.add_argument("--laws", default="zipf" if quick else ",".join(EXPONENTS))
    parser.add_argument("--peers", nargs="*", help="those whose names have one of these, only")
    parser.add_argument("--seconds", type=float, default=1.0, help="of timed steps of each map")
    parser.add_argument("--minutes", type=float, default=15, help="then no case begins any more")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--torch-python", default=str(ROOT / ".venv-peers" / "bin" / "python"))
    parser.add_argument("--json", type=Path, help="file to write")
    options = parser.parse_args(given)
    options.quick = quick
    cases = [
        Case(int(float(millions) * 1e6), full, law)
        for millions in options.capacities.split(",")
        for full in options.full.split(",")
        for law in options.laws.split(",")
        if full in FULLNESS and law in EXPONENTS
    ]
    if not cases:
        parser.error(f"--full is of {', '.join(FULLNESS)}; --laws of {', '.join(EXPONENTS)}")
    options.cases = cases
    wanted = options.peers
    options.peers = [p for p in PEERS if not wanted or any(part in p.name for part in wanted)]
    return options


def percentiles(seconds: list[float]) -> dict:
    """What is told of a map's steps."""
    p50, p99 = np.percentile(seconds, (50, 99)) * 1e3
    return {
        "steps": len(seconds),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "slowest_ms": max(seconds) * 1e3,
        "ids_per_second": BATCH * len(seconds) / sum(seconds),
    }


def compared(results: dict[str, dict]) -> dict[str, dict]:
    """Results with what follows from them: times faster ours is, and p99 over the control's."""
    ours, control = results.get(FIRST, {}), results.get(CONTROL, {})
    for result in results.values():
        rate = result.get("ids_per_second")
        mine = ours.get("ids_per_second")
        result["ratio"] = mine / rate if rate and mine else None
        base = control.get("p99_ms")
        result["p99_of_control"] = result["p99_ms"] / base if base and rate else None
    return results


class Maps:
    """The maps, each in its process: built and filled, then measured in turns."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.failed: dict[str, str] = {}
        self.filled: dict[str, dict] = {}
        self.versions: dict[str, dict] = {}
        python = options.torch_python if Path(options.torch_python).exists() else None
        interpreters = Interpreters(torch=python)
        self.files = {"first": folder / "first.npy", "stream": folder / "stream.npy"}
        self.started: dict[str, Worker] = {}
        self.workers: dict[str, Worker] = {}  # of those, the ones that are filled
        self.absent: dict[str, str] = {}
        for peer in options.peers:  # all at once: loading libraries takes its time
            if interpreters.of(peer) is None:
                self.absent[peer.name] = "no environment with torch (make .venv-peers/.pins)"
            else:
                worker = Worker(peer, interpreters.of(peer), options.threads)
                self.started[peer.name] = worker
        for name, worker in list(self.started.items()):
            try:
                self.versions[name] = worker.started()
            except PeerError as error:
                self._leave_out(name, str(error))

    def _leave_out(self, name: str, reason: str) -> None:
        self.absent[name] = reason
        self.started.pop(name).close()

    def fill(self, case: Case) -> None:
        """Maps of the case's capacity, as full as it says, whatever they were before."""
        self.failed, self.filled = dict(self.absent), {}
        np.save(self.files["first"], first(case))
        self.workers = dict(self.started)
        requests = (
            ("build", {"tables": 1, "rows": case.capacity, "dim": 0}),
            ("fill", {"ids": str(self.files["first"])}),
        )
        for do, arguments in requests:
            for worker in self.workers.values():
                with contextlib.suppress(PeerError):  # of one that has gone: the reply says so
                    worker.send(do, **arguments)
            for name, worker in list(self.workers.items()):
                try:
                    reply = worker.receive()
                    if do == "fill":
                        self.filled[name] = reply
                except PeerError as error:
                    self.failed[name] = str(error)
                    del self.workers[name]

    def stream(self, case: Case) -> None:
        """The ids of the steps to come."""
        np.save(self.files["stream"], stream(case, STREAM_STEPS))

    def measure(self, group: str) -> dict[str, dict]:
        """{peer: what `percentiles` says}, all taking turns."""
        ready, taken = {}, {}
        for name, worker in list(self.workers.items()):
            if group not in worker.peer.copies:
                continue
            try:
                worker.ask("prepare", group=group, ids=str(self.files["stream"]))
                ready[name], taken[name] = worker.ask("warm")["seconds"], []
            except PeerError as error:
                self.failed[f"{name}, {group}"] = str(error)
        for number in range(self.options.rounds):
            names = list(taken)
            at = number % max(1, len(names))
            for name in names[at:] + names[:at]:
                steps = int(self.options.seconds / max(ready[name], 1e-6) / self.options.rounds)
                steps = min(max(steps, 5), 400)
                try:
                    taken[name] += self.workers[name].ask("run", steps=steps, lead=True)
                except PeerError as error:
                    self.failed[f"{name}, {group}"] = str(error)
                    taken.pop(name)
        for name in taken:
            with contextlib.suppress(PeerError):  # of one that has gone: its next step says so
                self.workers[name].ask("release")
        return compared({name: percentiles(seconds) for name, seconds in taken.items()})

    def close(self) -> None:
        """Ends the processes."""
        for worker in self.started.values():
            worker.close()


def show(console: Console, case: Case, group: str, results: dict, filled: dict) -> None:
    table = Table(title=f"{case.label}: {group}", title_justify="left")
    table.add_column("map")
    for heading in (
        "M ids/s", "p50, ms", "p99, ms", "slowest, ms", "p99 / control's", "ours / theirs",
        "bytes a row",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for name, result in results.items():
        state = filled.get(name, {})
        per_row = state["bytes"] / state["rows"] if state.get("bytes") else None
        table.add_row(
            name,
            f"{result['ids_per_second'] / 1e6:.1f}",
            f"{result['p50_ms']:.2f}",
            f"{result['p99_ms']:.2f}",
            f"{result['slowest_ms']:.2f}",
            f"{result['p99_of_control']:.2f}x" if result["p99_of_control"] else "-",
            f"{result['ratio']:.2f}x" if result["ratio"] else "-",
            f"{per_row:.1f}" if per_row else "-",
        )
    console.print(table)


def measured(maps: Maps, case: Case, before: list[dict], console: Console) -> dict:
    """What came of one case, shown."""
    last = before[-1] if before else {}
    if (last.get("capacity"), last.get("full")) != (case.capacity, case.full):
        maps.fill(case)
    maps.stream(case)
    groups = {group: maps.measure(group) for group in GROUPS}
    for group, results in groups.items():
        show(console, case, group, results, maps.filled)
    for name, reason in maps.failed.items():
        console.print(f"[yellow]left out[/] {name}: {reason}", highlight=False)
    return {**case.record(), "results": groups, "filled": maps.filled, "failed": dict(maps.failed)}


def main(given: list[str] | None = None) -> int:
    options, usage, begun = arguments(given), CpuUsage(), time.monotonic()
    console = Console(width=None if sys.stdout.isatty() else 150)
    document = {
        "benchmark": "ids",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "threads": options.threads,
        "machine": describe(),
        "cases": [],
        "skipped": [],
    }
    with shared_folder() as folder:
        maps = Maps(options, folder)
        try:
            for case in options.cases:
                if time.monotonic() - begun > 60 * options.minutes:
                    document["skipped"].append(case.label)
                    console.print(f"[yellow]skipped[/] {case.label}: the time is up")
                    continue
                document["cases"].append(measured(maps, case, document["cases"], console))
                document["versions"] = maps.versions
                document["machine"]["others_cpu_percent"] = round(usage.others_percent(), 1)
                if options.json:  # a run that is stopped keeps what it had
                    options.json.parent.mkdir(parents=True, exist_ok=True)
                    options.json.write_text(json.dumps(document, indent=1) + "\n")
        finally:
            maps.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
