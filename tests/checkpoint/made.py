"""Checkpoints of tables that are plain dicts: what was written is known without the package."""

import itertools

import numpy as np

from merlin_embeddings import checkpoint
from merlin_embeddings.checkpoint import SlotInfo, TableInfo, Writer
from merlin_embeddings.tables import Entries

SLOTS = {"accumulator": SlotInfo((), "float32", 0.1), "momentum": SlotInfo((3,), "float32", 0.0)}


def row_info(rows=100, **other):
    return TableInfo("user/item é", rows, 3, slots=SLOTS, **other)


def id_info(**other):
    return TableInfo("ids", 1000, 3, key="id", slots=SLOTS, scores="int64", **other)


def row_of(rng):
    """A row: vector, accumulator, momentum, score."""
    numbers = rng.normal(size=7).astype("float32")
    return (*numbers[:3], numbers[3], *numbers[4:], int(rng.integers(1 << 32)))


def entries_of(info, rows, chunk=16):
    """Entries of {key: row}, in the dict's order."""
    keys = list(rows)
    for at in range(0, len(keys), chunk):
        some = keys[at : at + chunk]
        table = np.array([rows[key][:7] for key in some], "float32")
        yield Entries(
            np.array(some, np.int64),
            table[:, :3].astype(info.dtype),
            {"accumulator": table[:, 3], "momentum": table[:, 4:]},
            np.array([rows[key][7] for key in some], np.int64) if info.scores else None,
        )


def rows_of(found, info):
    """{key: row} of Entries, each key once."""
    rows = {}
    for some in found:
        assert len(some.erased) == 0
        scores = np.zeros(len(some), np.int64) if some.scores is None else some.scores
        for at, key in enumerate(some.keys.tolist()):
            assert key not in rows
            slots = (some.slots["accumulator"][at], *some.slots["momentum"][at])
            rows[key] = (*some.vectors[at], *slots, int(scores[at]))
    return rows


def without_scores(rows):
    return {key: (*row[:7], 0) for key, row in rows.items()}


def shard_of(key, virtual_shards):
    """Any function of the id will do."""
    return (key * 2654435761) % virtual_shards


def write_rows(path, rows, info, parts=2, **options):
    """A table of rows by ranges."""
    edges = [info.rows * part // parts for part in range(parts + 1)]
    for part, (start, stop) in enumerate(itertools.pairwise(edges)):
        keys = range(start, stop)
        with Writer(path, part, parts, overwrite=options.get("overwrite", False)) as writer:
            some = {key: rows[key] for key in keys}
            writer.table(info, entries_of(info, some), len(keys), keys=keys)
    checkpoint.commit(path, parts, **options)


def write_ids(path, rows, info, parts=2, erased=(), states=None, **options):
    """A table of ids, by virtual shard where it has them."""
    total = info.virtual_shards or parts
    edges = [total * part // parts for part in range(parts + 1)]
    for part, (first, stop) in enumerate(itertools.pairwise(edges)):
        with Writer(path, part, parts, overwrite=options.get("overwrite", False)) as writer:
            counts, some = [], {}
            for shard in range(first, stop):
                mine = {k: row for k, row in rows.items() if shard_of(k, total) == shard}
                counts.append(len(mine))
                some |= mine
            gone = [key for key in erased if first <= shard_of(key, total) < stop]
            whose = (first, stop) if info.virtual_shards else None
            writer.table(
                info,
                entries_of(info, some),
                counts if whose else sum(counts),
                virtual_shards=whose,
                erased=gone,
                state=None if states is None else states[first:stop],
            )
    checkpoint.commit(path, parts, **options)
