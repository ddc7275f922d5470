"""Interleaved measurement: peers take turns on the same ids, and medians are compared."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from cases import Batch, TableSet
from workers import OURS, REFERENCES, Peer, PeerError, Pool, Worker

SETTLE = 0.003  # seconds between turns: thread pools of the last peer stop spinning
SLOW_STEP = 0.2  # seconds: no untimed step before a timed one
FAR_BEHIND = 4.0  # times the fastest peer's step: its exact median decides nothing
MIN_STEPS_FAR_BEHIND, MAX_STEPS = 2, 400
NARROW = 0.02  # half the interval of a median, as a part of it: further steps would change nothing
NARROW_ROUNDS = 4  # that a peer takes part in all the same, so that drift is seen
TIME_UP = "the run's time was up"


@dataclass(frozen=True)
class Effort:
    """How long a peer is measured in a case.

    `seconds`: of its timed steps in all; `rounds`: turns, for a peer quick enough; `min_steps`:
    steps of a peer that takes longer than that. A peer whose median is known closely enough before
    takes no more turns.
    """

    seconds: float
    rounds: int = 8
    min_steps: int = 5


@dataclass
class Result:
    """One peer in one case. `versus`: ours in the same wave, the denominator of its ratio."""

    peer: str
    group: str
    tables: TableSet
    batch: Batch
    way: str = ""
    steps: int = 0
    median_ms: float | None = None
    best_ms: float | None = None
    quartiles_ms: tuple[float, float] | None = None
    interval_ms: tuple[float, float] | None = None
    ours_ms: float | None = None
    skipped: str | None = None

    @property
    def ratio(self) -> float | None:
        """Times faster ours is; None where either is missing."""
        if self.median_ms is None or self.ours_ms is None:
            return None
        return self.median_ms / self.ours_ms

    @property
    def rate(self) -> float | None:
        """Million lookups a second."""
        looked_up = self.tables.tables * self.batch.size * self.batch.hotness
        return looked_up / self.median_ms / 1e3 if self.median_ms else None

    def record(self) -> dict:
        return {**asdict(self), "million_lookups_per_second": self.rate, "ratio": self.ratio}

    @classmethod
    def of_record(cls, record: dict) -> Result:
        """The result that `record` made, of any version's file."""
        known = {key: value for key, value in record.items() if key in cls.__dataclass_fields__}
        parts = {"tables": TableSet(**record["tables"]), "batch": Batch(**record["batch"])}
        return cls(**{**known, **parts})


@dataclass
class Wave:
    """Peers, with the bytes each needs, in memory at the same time; ours is in each wave."""

    peers: list[tuple[Peer, int]]

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, nbytes in self.peers)


def waves(
    peers: list[Peer], group: str, tables: TableSet, batches: list[Batch], ids: dict[Batch, Path],
    budget: int,
) -> tuple[list[Wave], dict[str, str]]:  # fmt: skip
    """Split `peers` so that each wave fits in `budget` bytes; reasons for those that never do."""

    def need(peer: Peer) -> int:
        return max(peer.nbytes(group, tables, b, ids[b].stat().st_size) for b in batches)

    ours = [(peer, need(peer)) for peer in peers if peer.name == OURS]
    result: list[Wave] = []
    skipped = {}
    if Wave(ours).nbytes > budget:
        skipped[OURS] = f"needs {_gib(Wave(ours).nbytes)} of memory, {_gib(budget)} to be had"
        ours = []
    for peer in peers:
        if peer.name == OURS:
            continue
        alone = Wave([*ours, (peer, need(peer))])
        if alone.nbytes > budget:
            beside = f" beside {OURS}" if ours else ""
            skipped[peer.name] = (
                f"needs {_gib(alone.nbytes)} of memory{beside}, {_gib(budget)} to be had"
            )
            continue
        fitting = next((wave for wave in result if wave.nbytes + need(peer) <= budget), None)
        if fitting is None:
            result.append(alone)
        else:
            fitting.peers.append((peer, need(peer)))
    if not result and ours:
        result.append(Wave(list(ours)))
    return result, skipped


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


def _prepared(pool: Pool, workers: list[Worker], group: str, ids: dict[Worker, Path], failed: dict):
    """Prepare all at once (it isn't timed), then warm each up alone."""
    asked, ready = [], {}
    for worker in workers:
        try:
            worker.send("prepare", group=group, ids=str(ids[worker]))
            asked.append(worker)
        except PeerError as error:
            failed[worker.peer.name] = str(error)
            pool.drop(worker)
    for worker in asked:
        try:
            worker.receive()
            ready[worker] = None
        except PeerError as error:
            failed[worker.peer.name] = str(error)
            pool.drop(worker)
    for worker in list(ready):
        try:
            ready[worker] = worker.ask("warm")
        except PeerError as error:
            failed[worker.peer.name] = str(error)
            pool.drop(worker)
            del ready[worker]
    return ready


def interleave(
    pool: Pool, workers: list[Worker], group: str, ids: dict[Worker, Path], effort: Effort
) -> tuple[dict[Worker, tuple[str, list[float]]], dict[str, str]]:
    """Seconds of every timed step of every worker.

    A turn is an untimed step, which brings the peer's own data back into the caches, and timed
    ones. Who begins a round changes from round to round. A slow peer has fewer turns, spread over
    the rounds.
    """
    failed: dict[str, str] = {}
    ready = _prepared(pool, workers, group, ids, failed)
    turns: dict[Worker, dict[int, int]] = {}
    others = [f["seconds"] for w, f in ready.items() if w.peer.name not in (OURS, *REFERENCES)]
    for worker, found in ready.items():
        step = max(found["seconds"], 1e-6)
        far_behind = step > max(SLOW_STEP, FAR_BEHIND * min(others, default=math.inf))
        least = MIN_STEPS_FAR_BEHIND if far_behind else effort.min_steps
        steps = int(np.clip(effort.seconds / step, least, MAX_STEPS))
        last = effort.rounds - 1
        rounds = np.linspace(0, last, min(steps, effort.rounds)).round().astype(int)
        share = np.full(len(rounds), steps // len(rounds))
        share[: steps % len(rounds)] += 1
        turns[worker] = dict(zip(rounds.tolist(), share.tolist(), strict=True))
    taken: dict[Worker, list[float]] = {worker: [] for worker in ready}
    for number in range(effort.rounds):
        order = list(taken)
        if number >= NARROW_ROUNDS and all(map(is_narrow, taken.values())):
            break
        for worker in order[number % max(len(order), 1) :] + order[: number % max(len(order), 1)]:
            steps = turns[worker].get(number)
            done = number >= NARROW_ROUNDS and is_narrow(taken[worker])
            # Ours is in every round: all ratios are to it.
            if not steps or (done and worker.peer.name != OURS):
                continue
            time.sleep(SETTLE)
            try:
                lead = ready[worker]["seconds"] < SLOW_STEP
                taken[worker] += worker.ask("run", steps=steps, lead=lead)
            except PeerError as error:
                failed[worker.peer.name] = str(error)
                pool.drop(worker)
                del taken[worker]
    for worker in list(taken):
        try:
            worker.ask("release")
        except PeerError:  # its figures stand; the next case starts it anew
            pool.drop(worker)
    return {worker: (ready[worker]["way"], times) for worker, times in taken.items()}, failed


def median_interval(times: list[float]) -> tuple[float, float]:
    """The 95% confidence interval of the median, by order statistics: of any distribution."""
    ordered, n = sorted(times), len(times)
    reach = 1.96 * math.sqrt(n)
    low, high = math.floor((n - reach) / 2), math.ceil((n + reach) / 2)
    return ordered[max(low - 1, 0)], ordered[min(high, n - 1)]


def is_narrow(times: list[float]) -> bool:
    """Whether the median is known closely enough."""
    if not times:
        return False
    low, high = median_interval(times)
    return high - low <= 2 * NARROW * statistics.median(times)


def summarise(result: Result, way: str, times: list[float]) -> Result:
    result.way, result.steps = way, len(times)
    result.median_ms = statistics.median(times) * 1e3
    result.best_ms = min(times) * 1e3
    low, high = np.percentile(times, (25, 75)) * 1e3
    result.quartiles_ms = (float(low), float(high))
    low, high = median_interval(times)
    result.interval_ms = (low * 1e3, high * 1e3)
    return result


def _measure_case(
    pool: Pool, wave: Wave, group: str, tables: TableSet, batch: Batch, ids: Path, budget: int,
    effort: Effort,
) -> list[Result]:  # fmt: skip
    wanted = [(peer, tables, nbytes) for peer, nbytes in wave.peers]
    workers, failed = pool.get(wanted, budget)
    times, broke = interleave(pool, workers, group, dict.fromkeys(workers, ids), effort)
    done = [
        summarise(Result(worker.peer.name, group, tables, batch), *value)
        for worker, value in times.items()
    ]
    ours = next((result.median_ms for result in done if result.peer == OURS), None)
    for result in done:
        result.ours_ms = ours
    return done + [
        Result(name, group, tables, batch, skipped=reason)
        for name, reason in {**failed, **broke}.items()
    ]


def measure_tables(
    pool: Pool, peers: list[Peer], groups: list[str], tables: TableSet, ids: dict[Batch, Path],
    budget: int, effort: Effort, progress: Callable[[str], None],
    time_up: Callable[[], bool] = lambda: False,
) -> list[Result]:  # fmt: skip
    """All groups and batches on one set of tables. Ours has one result a wave.

    The first waves of all groups come before the second ones, since they share workers. Cases that
    are left when the time is up are skipped.
    """
    results, plans = [], {}
    for group in groups:
        takes_part = [peer for peer in peers if group in peer.copies]
        plans[group], skipped = waves(takes_part, group, tables, list(ids), ids, budget)
        results += [
            Result(name, group, tables, batch, skipped=reason)
            for name, reason in skipped.items()
            for batch in ids
        ]
    for number in range(max(map(len, plans.values()))):
        for group in groups:
            if number >= len(plans[group]):
                continue
            wave = plans[group][number]
            progress(group)
            for batch, path in ids.items():
                if time_up():
                    results += [
                        Result(peer.name, group, tables, batch, skipped=TIME_UP)
                        for peer, _ in wave.peers
                    ]
                else:
                    results += _measure_case(pool, wave, group, tables, batch, path, budget, effort)
    return results
