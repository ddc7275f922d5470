"""One table larger than every cache and uniform ids: how near is a lookup to what memory can give?

The other cases' Zipf ids keep hot rows in the caches; here every row comes from memory, and what
counts is how many reads are under way at once. Ours, the peers that pool or gather on the CPU, and
the gather limit; forward only. Batches are large enough that no call's own cost is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cases import Batch, TableSet, ids_file, uniform_ids
from measure import Effort, Result, measure_tables
from workers import CALL, GATHER, Peer, Pool

LOOKUPS = 1 << 17  # a batch, at least
POOLS = (1, 20)  # lookups a bag
LEFT_OUT = ("Keras", CALL, GATHER)  # it gathers as `tf lookup` does; floors of small calls


def batches(lookups: int) -> list[Batch]:
    """One for each of `POOLS`; bags of many are fewer, at most an eighth."""
    return [Batch(max(lookups // min(pool, 8), 1), pool) for pool in POOLS]


def measure_uniform(
    pool: Pool, peers: list[Peer], nbytes: int, dims: list[int], lookups: int, folder: Path,
    budget: Callable[[], int], effort: Effort, progress: Callable[[str], None],
    time_up: Callable[[], bool],
) -> list[Result]:  # fmt: skip
    """Forward results of one table of `nbytes` for each dim.

    Only one size of table is in memory at a time, and only as many peers' as `budget` allows.
    """
    compared = [peer for peer in peers if peer.name not in LEFT_OUT]
    results = []
    for dim in dims:
        pool.close_tables()
        tables = TableSet(1, max(nbytes // (4 * dim), 1), dim)
        files = {batch: ids_file(folder, 1, tables.rows, batch, uniform_ids)
                 for batch in batches(lookups)}  # fmt: skip
        results += measure_tables(
            pool, compared, ["forward"], tables, files, budget(), effort, progress, time_up
        )
        for file in files.values():
            file.unlink()
    pool.close_tables()
    return results
