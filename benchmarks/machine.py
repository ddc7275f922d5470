"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path


def _first(path: str, default: str = "unknown") -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return default


class CpuUsage:
    """How much of the machine's CPU time went to others since this was made.

    Counts what this process and its children that have ended did not use, and what a hypervisor
    gave to other machines.
    """

    def __init__(self) -> None:
        self._start = self._read()

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """Seconds since boot: all, not idle, ours."""
        ticks = [int(t) for t in _first("/proc/stat", "cpu 0").splitlines()[0].split()[1:9]]
        second = os.sysconf("SC_CLK_TCK")
        idle = sum(ticks[3:5])
        return sum(ticks) / second, (sum(ticks) - idle) / second, sum(os.times()[:4])

    def others_percent(self) -> float:
        """Percent of all cores' time."""
        total, busy, ours = (b - a for a, b in zip(self._start, self._read(), strict=True))
        return max(0.0, 100 * (busy - ours) / total) if total else 0.0


def describe() -> dict:
    cpu = _first("/proc/cpuinfo", "")
    model = re.search(r"^model name\s*:\s*(.+)$", cpu, re.M)
    flags = re.search(r"^flags\s*:\s*(.+)$", cpu, re.M)
    known = set(flags.group(1).split()) if flags else set()
    caches = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind = _first(f"{index}/level"), _first(f"{index}/type").lower()
        shared = _first(f"{index}/shared_cpu_list")
        caches[f"L{level} {kind}"] = f"{_first(f'{index}/size')} (CPUs {shared})"
    memory = re.search(r"MemTotal:\s+(\d+)", _first("/proc/meminfo", ""))
    return {
        "cpu": model.group(1) if model else platform.processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "instruction_sets": [name for name in ("avx2", "fma", "avx512f") if name in known],
        "caches": caches,
        "memory_gib": round(int(memory.group(1)) / 2**20, 1) if memory else None,
        "kernel": platform.release(),
        "transparent_huge_pages": _first("/sys/kernel/mm/transparent_hugepage/enabled"),
        "python": platform.python_version(),
    }
