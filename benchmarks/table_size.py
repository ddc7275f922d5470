"""Adam on one table, one-hot: is the step's cost that of the batch, or that of the table?"""

from __future__ import annotations

from pathlib import Path

from cases import Batch, TableSet, ids_file
from measure import Effort, Result, interleave, summarise
from workers import OURS, Peer, Pool


def measure_size(
    pool: Pool, peers: list[Peer], large: TableSet, small: TableSet, batch: Batch, folder: Path,
    budget: int, effort: Effort,
) -> dict:  # fmt: skip
    """Ours at both sizes and Keras at the large one, interleaved."""
    wanted = []
    for peer in peers:
        if peer.name == OURS:
            wanted += [(peer, large), (peer, small)]
        elif peer.name == "Keras":
            wanted.append((peer, large))
    files = {tables: ids_file(folder, tables.tables, tables.rows, batch)
             for tables in (large, small)}  # fmt: skip
    skipped: dict[tuple[str, TableSet], str] = {}
    left, fits = budget, []
    for peer, tables in wanted:
        need = peer.nbytes("adam", tables, batch, files[tables].stat().st_size)
        if need > left:
            skipped[peer.name, tables] = f"needs {need / 2**30:.1f} GiB of memory"
            continue
        left -= need
        fits.append((peer, tables, need))
    workers, failed = pool.get(fits, budget)
    times, broke = interleave(
        pool, workers, "adam", {worker: files[worker.tables] for worker in workers}, effort
    )
    found = {
        (worker.peer.name, worker.tables): summarise(
            Result(worker.peer.name, "adam", worker.tables, batch), *value
        )
        for worker, value in times.items()
    }
    ours = found.get((OURS, large))
    steps = []
    for peer, tables in wanted:
        key = (peer.name, tables)
        result = found.get(key)
        if result is None:
            reason = skipped.get(key) or {**failed, **broke}.get(peer.name, "no worker")
            result = Result(peer.name, "adam", tables, batch, skipped=reason)
        entry = {"peer": peer.name, "rows": tables.rows, **result.record()}
        if ours is not None and result.median_ms is not None and result is not ours:
            ratio = result.median_ms / ours.median_ms
            entry["note"] = (
                f"the large table costs {1 / ratio:.2f}x this" if peer.name == OURS
                else f"ours is {ratio:,.0f}x faster"
            )  # fmt: skip
        steps.append(entry)
    return {"batch": batch.label, "dim": large.dim, "steps": steps}
