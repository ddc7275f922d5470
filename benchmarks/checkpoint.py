"""Saving and loading tables: beside the disk's own speed, and beside what others save with.

    python benchmarks/checkpoint.py --gib 4 --folder /on/the/disk

Half of the bytes are one table's vectors (dim 64, float32), half are Adagrad's accumulators. Every
file is synced before a save counts as done, and its pages are dropped (posix_fadvise DONTNEED)
before it is read. "Plain" writes or reads as many bytes of one file in blocks of 16 MiB, in the
same process and in turn with ours. Memory is the peak of the process's resident memory above what
it had.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import machine
from rich.console import Console
from rich.table import Table

PEERS = ("numpy", "torch.save", "tf.train.Checkpoint", "Keras weights")
HERE = Path(__file__).parent
TORCH = HERE.parent / ".venv-peers/bin/python"


def run(what: str, folder: Path, gib: float, rounds: int) -> dict:
    """What a worker measured, in a process of its own."""
    python = str(TORCH) if what == "torch.save" else sys.executable
    if not Path(python).exists():
        return {"skipped": f"no {TORCH}: make bench makes it"}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [python, str(HERE / "checkpoint_worker.py"), what, str(folder), str(gib), str(rounds)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    shutil.rmtree(folder, ignore_errors=True)
    if done.returncode:
        return {"skipped": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def show(console: Console, found: dict, gib: float) -> None:
    """The tables of the report."""
    size, ours = gib * 2**30, found["ours"]
    table = Table(title=f"{gib:g} GiB, fsync included, page cache dropped before reading")
    for column in ("", "save GB/s", "load GB/s", "memory to save", "memory to load"):
        table.add_column(column, justify="left" if not column else "right")

    def add(name: str, result: dict) -> None:
        if "skipped" in result:
            table.add_row(name, result["skipped"])
            return
        speeds = [f"{size / median(result[how]) / 1e9:.2f}" for how in ("save", "load")]
        memory = [f"{result[how] / size:.1%}" for how in ("save_memory", "load_memory")]
        table.add_row(name, *speeds, *memory)

    plain = {"save": ours["plain_write"], "load": ours["plain_read"]}
    add("plain file", {**plain, "save_memory": 0, "load_memory": 0})
    add("merlin-embeddings", ours)
    for peer in [name for name in PEERS if name in found]:
        add(peer, found[peer])
    console.print(table)
    for what, measured, needed in facts(ours):
        console.print(f"{what}: {measured:.3g} ({needed})")


def facts(ours: dict) -> list[tuple[str, float, str]]:
    """What is to be reached, and what was."""

    def ratio(plain: str, own: str) -> float:
        return median(a / b for a, b in zip(ours[plain], ours[own], strict=True))

    return [
        ("save, of the speed of a plain write", ratio("plain_write", "save"), "0.8 or more"),
        ("load, of the speed of a plain read", ratio("plain_read", "load"), "0.8 or more"),
        ("memory to save, of the tables", ours["save_memory"] / ours["bytes"], "below 0.05"),
        ("memory to load, of the tables", ours["load_memory"] / ours["bytes"], "below 0.05"),
        (
            "reshard 8 -> 3, of the speed of a plain copy",
            ratio("plain_copy", "reshard"),
            "0.6 or more",
        ),
        (
            "increment of 1% of the rows, of the time of the save",
            median(ours["increment"]) / median(ours["save"]),
            "0.03 or less",
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=4, help="of tables and slots")
    parser.add_argument("--folder", type=Path, default=Path("build/bench/checkpoint"))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--rounds", type=int, default=2, help="of ours beside plain files")
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    arguments = parser.parse_args()
    usage = machine.CpuUsage()
    folder = arguments.folder.absolute() / "worker"
    found = {"ours": run("ours", folder, arguments.gib, arguments.rounds)}
    if "skipped" in found["ours"]:
        sys.exit(found["ours"]["skipped"])
    for peer in arguments.peers:
        found[peer] = run(peer, folder, arguments.gib, 1)
    console = Console(width=100)
    show(console, found, arguments.gib)
    others = usage.others_percent()
    console.print(f"{machine.describe()['cpu']}; others used {others:.0f}% of the machine")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        record = {"machine": machine.describe(), "others_percent": others, "gib": arguments.gib}
        arguments.json.write_text(json.dumps({**record, "found": found}, indent=1))


if __name__ == "__main__":
    main()
