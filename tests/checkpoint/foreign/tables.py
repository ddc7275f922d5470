"""Tables to write, and what was read as plain arrays."""

import numpy as np

from merlin_embeddings.checkpoint import SlotInfo, TableInfo
from merlin_embeddings.checkpoint.foreign import Source
from merlin_embeddings.tables import Entries


def source(name, keys, vectors, slots=None, scores=None, key="id", chunk=7):
    """A table of arrays."""
    keys, slots = np.asarray(keys, np.int64), slots or {}

    def read(_):
        for at in range(0, len(keys), chunk):
            some = slice(at, at + chunk)
            yield Entries(
                keys[some],
                vectors[some],
                {name: values[some] for name, values in slots.items()},
                None if scores is None else scores[some],
            )

    told = {n: SlotInfo(v.shape[1:], v.dtype.name, 0.0) for n, v in slots.items()}
    info = TableInfo(
        name,
        len(keys),
        vectors.shape[1],
        vectors.dtype.name,
        key,
        told,
        None if scores is None else scores.dtype.name,
    )
    return Source(info, len(keys), "memory", read)


def rows_of(found, chunk=5):
    """{key: (vector, {slot: value}, score)}, each key once; None for no score."""
    rows = {}
    for some in found.entries(chunk):
        assert len(some) <= chunk
        for at, key in enumerate(some.keys.tolist()):
            assert key not in rows
            slots = {name: values[at].tolist() for name, values in some.slots.items()}
            score = None if some.scores is None else int(some.scores[at])
            rows[key] = (some.vectors[at].astype(np.float64).tolist(), slots, score)
    assert len(rows) == found.count
    return rows


def keys_of(found, chunk=5):
    return [key for some in found.entries(chunk) for key in some.keys.tolist()]
