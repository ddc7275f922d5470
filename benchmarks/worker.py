"""The process of one peer: builds tables, prepares a case, runs steps when told to.

Requests and replies are one JSON object a line, on stdin and on the standard output of the start;
whatever a library prints goes to stderr. The worker sleeps on the pipe while another peer runs, and
times its own steps, so that the pipe's delay is outside.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
if "--root" in sys.argv:  # the package under test, when it isn't installed
    sys.path.insert(0, sys.argv[sys.argv.index("--root") + 1])

SLOW_STEP = 0.5  # seconds; a step this slow is warm after one more
FINALISTS = 4  # ways of calling the peer that are tried a second time, for longer
FINAL_SECONDS = 0.1
FIRST_PASS_SECONDS = 3.0 if os.environ.get("QUICK", "0") in ("", "0") else 0.1


class Worker:
    def __init__(self, adapter: str, threads: int) -> None:
        module, _, name = adapter.partition(":")
        of = getattr(importlib.import_module(f"adapters.{module}"), name or "Adapter")
        self.adapter = of(threads)

    def versions(self) -> dict:
        return self.adapter.versions()

    def build(self, tables: int, rows: int, dim: int) -> None:
        self.adapter.build(tables, rows, dim)

    def fill(self, ids: str) -> dict:
        """Id maps: takes up all ids [N], and says what it holds then."""
        return self.adapter.fill(np.load(ids, mmap_mode="r"))

    def prepare(self, group: str, ids: str) -> None:
        self.release()
        self.ids = np.load(ids, mmap_mode="r")
        self.count = len(self.ids)
        self.group = group
        self.ways = self.adapter.steps(group, self.ids)

    def _seconds(self, step, n: int = 1) -> list[float]:
        taken = []
        for _ in range(n):
            batch = self.next % self.count
            self.next += 1
            start = time.perf_counter()
            result = step(batch)
            taken.append(time.perf_counter() - start)
            del result
        return taken

    def warm(self) -> dict:
        """Pick the fastest way of calling the peer on these ids; estimate a step's seconds."""
        self.next = 0
        best: dict[str, float] = {}
        for name, step in self.ways.items():
            first = self._seconds(step)[0]  # traces, allocates the optimizer's state
            best[name] = min(self._seconds(step, 1 if first > SLOW_STEP else 2))
        for name in sorted(best, key=best.__getitem__)[:FINALISTS] if len(best) > 1 else ():
            steps = max(1, min(10, int(FINAL_SECONDS / best[name])))
            best[name] = min(best[name], *self._seconds(self.ways[name], steps))
        self.way = min(best, key=best.__getitem__)
        self.step = self.ways[self.way]
        self.ways = {self.way: self.step}
        # Slots are mapped when first written: every row of these ids is, before time is taken.
        stop = time.perf_counter() + (FIRST_PASS_SECONDS if best[self.way] < SLOW_STEP else 0)
        while self.next < self.count and time.perf_counter() < stop:
            self._seconds(self.step)
        again = self._seconds(self.step, 1 if best[self.way] > SLOW_STEP else 3)
        return {"way": self.way, "seconds": min(best[self.way], *again)}

    def run(self, steps: int, lead: bool) -> list[float]:
        """Seconds of each of `steps` steps; `lead` puts an untimed one before them."""
        if lead:
            self._seconds(self.step)
        return self._seconds(self.step, steps)

    def release(self) -> None:
        self.step = self.ways = self.ids = None
        self.adapter.release()
        gc.collect()

    def check(self, values: str, ids: str, group: str, result: str) -> None:
        """One step from known tables, what came out saved in `result` for the parent to judge."""
        tables = np.load(values)
        self.adapter.build(*tables.shape)
        self.adapter.load(tables)
        batches = np.load(ids)
        saved = {}
        for name, step in self.adapter.steps(group, batches).items():
            self.adapter.load(tables)  # a way of training starts where the one before it did
            out = step(0)
            value = self.adapter.outputs(out) if group == "forward" else self.adapter.read()
            saved[name] = np.array(value)
        np.savez(result, **saved)
        self.release()


def die_with_parent() -> None:
    """Whatever ends the parent, SIGKILL too, ends this process, in the middle of a step if need be.

    Ctrl-C goes to both: here it is the parent's to handle.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[sys.argv.index("--parent") + 1]):
        sys.exit("the parent has ended already")


def main() -> None:
    die_with_parent()
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = None
    for line in sys.stdin:
        request = json.loads(line)
        command = request.pop("do")
        try:
            if command == "start":
                worker = Worker(**request)
                value = worker.versions()
            else:
                value = getattr(worker, command)(**request)
            reply = {"value": value}
        except Exception as error:  # the parent decides what a peer's failure means
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
