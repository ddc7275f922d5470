"""Do the peers compute the same thing? One small step of each, judged by numpy."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
from cases import LEARNING_RATE, output_gradient
from workers import CALL, Peer, PeerError, Pool

SHAPE = (3, 64, 16)  # tables, rows, dim
BAGS = 32
HOTNESS = (1, 4)


def _tables_and_ids(hotness: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(7)
    values = draw.standard_normal(SHAPE, np.float32)
    # The upper half of the rows is never looked up, and must never change.
    ids = draw.integers(0, SHAPE[1] // 2, (1, SHAPE[0], BAGS, hotness), np.int64)
    return values, ids


def forward_reference(values: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """values [T, R, D], ids [T, B, L] -> [T, B, D]."""
    return np.stack([table[i].sum(1) for table, i in zip(values, ids, strict=True)])


def row_gradient(values: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The gradient of each row [T, R, D], duplicates summed."""
    gradient = np.zeros_like(values)
    outputs = output_gradient(ids.shape[0], ids.shape[1], values.shape[2])
    for table, (looked_up, output) in enumerate(zip(ids, outputs, strict=True)):
        np.add.at(gradient[table], looked_up, output[:, None])
    return gradient


def fault(group: str, values: np.ndarray, ids: np.ndarray, found: np.ndarray) -> str | None:
    """What is wrong with a peer's outputs (forward) or its tables after one step, if anything.

    Starting values and epsilons differ between the peers' rules, so for other rules than SGD a row
    looked up must have moved against its gradient, and all other rows must be as they were.
    """
    if group == "forward":
        right = np.allclose(found, forward_reference(values, ids), rtol=1e-5, atol=1e-5)
        return None if right else "sums are not those of the rows looked up"
    gradient = row_gradient(values, ids)
    if group == "sgd":
        right = np.allclose(found, values - LEARNING_RATE * gradient, rtol=1e-5, atol=1e-6)
        return None if right else "rows aren't those of an SGD step"
    seen = np.zeros(values.shape[:2], bool)
    for table, looked_up in enumerate(ids):
        seen[table, looked_up] = True
    if not np.array_equal(found[~seen], values[~seen]):
        return "rows that weren't looked up have changed"
    moved = (found - values)[seen]
    large = np.abs(gradient[seen]) > 1e-4
    if not np.all(np.sign(moved[large]) == -np.sign(gradient[seen][large])):
        return "rows did not move against their gradient"
    return None


def check(
    pool: Pool, peers: list[Peer], groups: list[str], folder: Path
) -> dict[str, dict[str, str]]:
    """{peer: {group: "ok" or what is wrong}}. The pool keeps the workers for their first tables."""
    verdicts: dict[str, dict[str, str]] = {}
    workers = []
    for worker in [pool.start(peer) for peer in peers if peer.name != CALL]:
        verdicts[worker.peer.name] = verdict = {}
        try:
            worker.started()
            workers.append(worker)
        except PeerError as error:
            verdict["error"] = str(error)
            worker.close()
    for group in groups:
        taking_part = [worker for worker in workers if group in worker.peer.copies]
        for hotness in HOTNESS:
            values, ids = _tables_and_ids(hotness)
            np.save(folder / "values.npy", values)
            np.save(folder / "ids.npy", ids)
            for worker in taking_part:
                with contextlib.suppress(PeerError):  # a dead process: `receive` will say so
                    worker.send(
                        "check", values=str(folder / "values.npy"), ids=str(folder / "ids.npy"),
                        group=group, result=str(folder / f"{worker.peer.adapter}.npz"),
                    )  # fmt: skip
            for worker in taking_part:
                verdict = verdicts[worker.peer.name]
                try:
                    worker.receive()
                    found = np.load(folder / f"{worker.peer.adapter}.npz")
                    faults = [
                        f"{way}, hotness {hotness}: {wrong}"
                        for way in found.files
                        if (wrong := fault(group, values, ids[0], found[way]))
                    ]
                except PeerError as error:
                    faults = [str(error)]
                before = [verdict[group]] if verdict.get(group, "ok") != "ok" else []
                verdict[group] = "; ".join(before + faults) or "ok"
    for worker in workers:
        pool.keep(worker)
    return verdicts
