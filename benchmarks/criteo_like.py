#!/usr/bin/env python3
"""DLRM on click logs with Criteo's schema: ours beside Keras's and TensorFlow's embeddings.

    python benchmarks/criteo_like.py                     all cases, about a quarter of an hour
    QUICK=1 python benchmarks/criteo_like.py             one small case, within two minutes
    python benchmarks/criteo_like.py --cases 100k-16k --rounds 4 --json results.json

Every competitor has its own process, trains the same model from the same weights on the same
batches in plain `fit`, and takes turns with the others. Compared are samples/s (the median of the
turns), the AUC on the same test rows after equally many steps, memory, and the share of a step that
embeddings take. `docs/criteo.md` says more.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import criteo_data
import criteo_report
from machine import CpuUsage, describe
from rich.console import Console

HERE = Path(__file__).resolve().parent
NAMES = ("ours", "keras", "tensorflow", "none")
BUSY_PERCENT = 5.0
SETTLE = 0.05  # seconds: threads that spin after their turn go to sleep
SEED = 20


@dataclass(frozen=True)
class Case:
    """A model size and a batch size.

    `tables`: "26 x N" tables of N rows each, or Criteo's cardinalities times a factor.
    """

    tables: str
    dim: int
    batch: int

    def cardinalities(self) -> tuple[int, ...]:
        if self.tables.startswith("26 x "):
            return (int(self.tables[5:]) - 3,) * 26  # ids 0, 1 and 2 are rows too
        return criteo_data.cardinalities(float(self.tables.removeprefix("Criteo x ")))


CASES = {
    "100k-4k": Case("26 x 100000", 64, 4096),
    "100k-16k": Case("26 x 100000", 64, 16384),
    "criteo-8k": Case("Criteo x 0.3", 16, 8192),
}
QUICK = {"quick": Case("26 x 20000", 16, 4096)}


class CompetitorError(RuntimeError):
    """A competitor could not do what was asked; the others go on."""


class Competitor:
    """A competitor's process (criteo_worker.py) and the pipe to it."""

    def __init__(self, name: str, case: Case, folder: Path, learning_rate: float) -> None:
        self.name = name
        arguments = (name, folder, case.dim, case.batch, SEED, learning_rate)
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "criteo_worker.py"), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("BENCH_DEBUG") else subprocess.DEVNULL,
            text=True,
        )

    def ready(self) -> None:
        """Waits until the model is built."""
        self._receive()

    def ask(self, do: str, **arguments):
        try:
            print(json.dumps({"do": do, **arguments}), file=self.process.stdin, flush=True)
        except OSError as error:
            raise CompetitorError(f"the process has gone ({self.process.wait()})") from error
        return self._receive()

    def steps(self, count: int) -> list[float]:
        """Seconds of each of `count` steps."""
        return self.ask("steps", count=count)

    def _receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise CompetitorError(f"the process has gone ({self.process.wait()})")
        reply = json.loads(line)
        if "error" in reply:
            raise CompetitorError(reply["error"])
        return reply["value"]

    def close(self) -> None:
        if self.process.poll() is None:
            try:
                print('{"do": "stop"}', file=self.process.stdin, flush=True)
                self.process.wait(20)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()


def measure(case: Case, folder: Path, options) -> tuple[dict, dict]:
    """What each competitor reached, and why others didn't: {name: result}, {name: reason}."""
    failed: dict[str, str] = {}
    running: dict[str, Competitor] = {}
    turns: dict[str, list[float]] = {}
    results: dict[str, dict] = {}

    def each(names, action) -> None:
        for name in list(names):
            try:
                action(name)
            except CompetitorError as error:
                failed[name] = str(error)
                running.pop(name).close()
                results.pop(name, None)

    def warm_up(name) -> None:
        running[name].ready()
        running[name].steps(options.warm_up)
        turns[name] = []
        results[name] = {}

    def turn(name) -> None:
        time.sleep(SETTLE)
        seconds = running[name].steps(options.lead + options.steps)[options.lead :]
        turns[name].append(case.batch * len(seconds) / sum(seconds))

    def finish(name) -> None:
        results[name] |= {
            "samples_per_second": statistics.median(turns[name]),
            "turns": [round(rate) for rate in turns[name]],
            "memory": running[name].ask("memory"),
            "quality": running[name].ask("quality"),
        }
        if options.profile:
            results[name]["profile"] = running[name].ask("profile", count=options.profile)

    try:
        for name in options.names:
            running[name] = Competitor(name, case, folder, options.learning_rate)
        each(running, warm_up)
        for number in range(options.rounds):
            order = list(running)
            each(order[number % max(len(order), 1) :] + order[: number % max(len(order), 1)], turn)
        each(running, finish)
    finally:
        for competitor in running.values():
            competitor.close()
    return criteo_report.compared(results, case.batch), failed


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    quick = os.environ.get("QUICK", "0") not in ("", "0")
    cases = QUICK if quick else CASES
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=",".join(cases), help=f"of {', '.join(CASES | QUICK)}")
    parser.add_argument("--tables", help='a case of your own: "26 x 100000" or "Criteo x 0.1"')
    parser.add_argument("--dim", type=int, default=64, help="of the case of your own")
    parser.add_argument("--batch", type=int, default=4096, help="of the case of your own")
    parser.add_argument("--only", default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=4 if quick else 10)
    parser.add_argument("--steps", type=int, default=5 if quick else 10, help="timed, a turn")
    parser.add_argument("--lead", type=int, default=3, help="untimed steps before those")
    parser.add_argument("--warm-up", type=int, default=4, help="steps before the first turn")
    parser.add_argument("--profile", type=int, default=3 if quick else 10, help="steps traced")
    parser.add_argument("--learning-rate", type=float, default=0.006)
    parser.add_argument("--test-rows", type=int, default=1 << 16 if quick else 1 << 18)
    parser.add_argument("--multi-hot", action="store_true", help="MLPerf's bag sizes, as lists")
    parser.add_argument("--drift", type=float, default=0.0)
    parser.add_argument("--data", type=Path, help="where data sets are kept (a temporary folder)")
    parser.add_argument("--json", type=Path, help="file to write")
    parsed = parser.parse_args(given)
    parsed.quick = quick
    known = CASES | QUICK
    parsed.names = parsed.only.split(",")
    for chosen, all_of_them in ((parsed.cases.split(","), known), (parsed.names, NAMES)):
        unknown = set(chosen) - set(all_of_them)
        if unknown:
            parser.error(f"{', '.join(sorted(unknown))}: not of {', '.join(all_of_them)}")
    parsed.chosen = {name: known[name] for name in parsed.cases.split(",")}
    if parsed.tables:
        parsed.chosen = {"own": Case(parsed.tables, parsed.dim, parsed.batch)}
    return parsed


def run(options: argparse.Namespace, console: Console) -> dict:
    started, machine, usage = time.time(), describe(), CpuUsage()
    steps = options.warm_up + options.rounds * (options.lead + options.steps)
    document = {
        "benchmark": "criteo_like",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "steps": steps,
        "learning_rate": options.learning_rate,
        "versions": criteo_report.versions(),
        "machine": machine,
        "cases": [],
    }
    with tempfile.TemporaryDirectory() as temporary:
        for case in options.chosen.values():
            parameters = criteo_data.Parameters(
                train_rows=(steps + options.profile) * case.batch,
                test_rows=options.test_rows,
                cardinalities=case.cardinalities(),
                hotness=criteo_data.MULTI_HOT if options.multi_hot else 1,
                drift=options.drift,
            )
            folder = (options.data or Path(temporary)) / f"{case.tables}, {case.batch}"
            dataset = criteo_data.generate(folder, parameters)
            console.print(f"[dim]{time.time() - started:5.0f} s[/] {case}", highlight=False)
            results, failed = measure(case, folder, options)
            rows = sum(parameters.table_rows)
            document["cases"].append(
                {
                    **asdict(case),
                    "table_rows": rows,
                    "table_bytes": 4 * rows * case.dim,
                    "data": dataset.record,
                    "results": results,
                    "failed": failed,
                }
            )
            criteo_report.show(console, document["cases"][-1])
    document["machine"]["others_cpu_percent"] = round(usage.others_percent(), 1)
    document["seconds"] = round(time.time() - started, 1)
    if document["machine"]["others_cpu_percent"] > BUSY_PERCENT:
        console.print(
            f"[red]Other processes used {document['machine']['others_cpu_percent']:.0f}% of the "
            "machine meanwhile: rates are too low, ratios uncertain.[/]"
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return document


def main(given: list[str] | None = None) -> int:
    options = arguments(given)
    document = run(options, Console(width=None if sys.stdout.isatty() else 150))
    return 1 if any(case["failed"] for case in document["cases"]) else 0


if __name__ == "__main__":
    sys.exit(main())
