"""Stateful maps and their oracles, for tests."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from merlin_embeddings import ids
from tests.ids.oracle import BUCKET, Oracle


def add_weight(*, shape, initializer, dtype, trainable, autocast, name):
    """As a layer's."""
    assert not trainable and not autocast
    return tf.Variable(initializer(shape, dtype=dtype), trainable=False, name=name, dtype=dtype)


def build(spec, name="item"):
    return spec.build(None, add_weight=add_weight, name=name)


def longs(values):
    return tf.constant(list(values), tf.int64)


def oracle_of(spec, map):
    """An oracle of the map that was built of a spec."""
    sizes = map._layout.sizes
    policy = map.policy
    word = "decayed_lfu" if policy.kind == "lfu" and policy.half_life else policy.kind
    parameter = getattr(policy, "half_life", None) or getattr(policy, "steps", 1)
    if isinstance(spec, ids.Dynamic):
        wanted = -(-5 * spec.initial // 3)
        initial = -(-wanted // (sizes.shards * BUCKET))
        more = {"initial": initial, "evict": spec.when_full != "error"}
    else:
        more = {
            "admit_after": spec.admit_after,
            "probability": spec.admit_probability or 1.0,
            "contest": spec.admit_probability is None,
            "oov_rows": spec.oov_rows,
        }
    kind = "dynamic" if isinstance(spec, ids.Dynamic) else "managed"
    return Oracle(
        kind,
        word,
        sizes.slots,
        sizes.shards,
        sizes.rows,
        parameter=parameter,
        open_routes=spec.open_routes,
        **more,
    )


def slots_of(map):
    """(slot, id, row, score) of all ids of a map."""
    state = map.state()
    columns = (state[name].tolist() for name in ("slots", "ids", "rows", "scores"))
    return list(zip(*columns, strict=True))


def known(map):
    """(id, row, score) of all ids of a map, sorted."""
    return sorted(
        entry
        for part in map.known(chunk=7)
        for entry in zip(part.ids.tolist(), part.rows.tolist(), part.scores.tolist(), strict=True)
    )


def changes_of(changes):
    """[(row, new id, old id or None)]."""
    rows, new, old, had = (np.asarray(part).tolist() for part in changes)
    return [(r, n, o if h else None) for r, n, o, h in zip(rows, new, old, had, strict=True)]


def agree(map, oracle):
    """Asserts that a map is what its oracle is; takes over scores that were rounded at random."""
    found = slots_of(map)
    for _, id, _, score in found:
        if id in oracle.exact:
            oracle.settle(id, score)
    oracle.exact = {}
    assert found == oracle.known()
    assert known(map) == sorted(entry[1:] for entry in found)
    statistics = {name: int(value) for name, value in map.statistics().items()}
    assert statistics == {
        **oracle.counts,
        "used": len(oracle.slots),
        "capacity": oracle.rows,
        "steps": oracle.clock,
    }
    assert int(map.used()) == len(oracle.slots)


def train(map, oracle, features, padding=None, counted=True, scored=False):
    """A training step of lists of (id, count, score), on both; rows and changes agree."""
    seen = [
        (id, count if counted else 1, score if scored else 0)
        for feature in features
        for id, count, score in feature
        if id != padding
    ]
    columns = [list(zip(*feature, strict=True)) or [(), (), ()] for feature in features]
    arguments = dict(
        padding=[padding] * len(features),
        counts=[longs(c) for _, c, _ in columns] if counted else None,
        scores=[longs(s) for _, _, s in columns] if scored else None,
        training=True,
    )
    given = [longs(i) for i, _, _ in columns]
    try:
        wanted = oracle.assign(seen)
    except OverflowError as error:
        new, free = error.args
        try:
            map.assign_features(given, **arguments)
        except tf.errors.ResourceExhaustedError as refused:
            assert f"table 'item': {new} new ids, and {free} free rows" in refused.message
            return agree(map, oracle)
        raise AssertionError("the map took more ids than it has rows") from error
    rows, changes = map.assign_features(given, **arguments)
    for (its_ids, _, _), its_rows in zip(columns, rows, strict=True):
        assert its_rows.numpy().tolist() == [
            -1 if id == padding else oracle.row(id) for id in its_ids
        ]
    assert changes_of(changes) == wanted
    return agree(map, oracle)
