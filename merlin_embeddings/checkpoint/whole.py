"""Whether the shards of a table make a whole, and whether rows of one table fit another."""

from __future__ import annotations

import itertools

from merlin_embeddings.checkpoint.errors import BrokenCheckpoint
from merlin_embeddings.checkpoint.manifest import Table, TableInfo


def require_whole(table: Table, what: str) -> None:
    """Checks that the shards of a table neither overlap nor lack rows.

    Raises:
        BrokenCheckpoint: they do.
    """
    info = table.info
    ranges = [shard.keys for shard in table.shards if shard.keys is not None]
    _require_disjoint(ranges, f"{what}: rows")
    if info.key == "row" and any(stop > info.rows for _, stop in ranges):
        raise BrokenCheckpoint(f"{what}: a shard has rows beyond its {info.rows}")
    if info.key == "id" and ranges:
        raise BrokenCheckpoint(f"{what}: its keys are ids, which are no range of rows")
    count = sum(shard.count for shard in table.shards)
    all_ranges = len(ranges) == len(table.shards)
    lacking = count != info.rows if all_ranges else count > info.rows
    if info.full and info.key == "row" and lacking:
        raise BrokenCheckpoint(f"{what}: its shards have {count} rows, not {info.rows}")
    virtual = [s.virtual_shards for s in table.shards if s.virtual_shards is not None]
    _require_disjoint(virtual, f"{what}: virtual shards")
    if info.virtual_shards is not None and (
        len(virtual) != len(table.shards)
        or sum(stop - start for start, stop in virtual) != info.virtual_shards
        or any(stop > info.virtual_shards for _, stop in virtual)
    ):
        raise BrokenCheckpoint(
            f"{what}: its shards don't have each of {info.virtual_shards} virtual shards once"
        )


def require_same_rows(before: TableInfo, after: TableInfo, what: str) -> None:
    """Checks that rows of one table can take the place of the other's.

    Raises:
        ValueError: they can't.
    """
    for name in ("rows", "dim", "dtype", "key", "slots", "scores", "virtual_shards"):
        if getattr(before, name) != getattr(after, name):
            raise ValueError(
                f"{what}: table '{after.name}' has {name} {getattr(before, name)} there, and "
                f"{getattr(after, name)} now; save without a base"
            )


def _require_disjoint(ranges: list[tuple[int, int]], what: str) -> None:
    ordered = sorted(pair for pair in ranges if pair[0] < pair[1])
    for (_, stop), (start, _) in itertools.pairwise(ordered):
        if start < stop:
            raise BrokenCheckpoint(f"{what} {start}..{stop - 1} are in two shards")
