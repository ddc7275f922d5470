"""States of id tables as arrays: cut along virtual shards, put together again, and checked.

A state has, of U ids: `slots`, `ids`, `rows`, `scores`, `pins` `[U]`; of a counting filter the
lines in use, `filter_lines` `[L]` and `filter` `[L, 64]`; and `meters` `[M + V]`: what the table
counts, and behind it how full the filter of each of its V virtual shards is. One shard's also has
`shard`, its number; its meters say what all shards have in common (the clock above all), how many
ids it has and its filter's. Totals of lookups aren't kept by shard: they are in shard 0's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from merlin_embeddings import native

ENTRIES = ("slots", "ids", "rows", "scores")
FILTER_LINE = 64

_COMMON = ("clock", "released", "epoch", "epoch_began", "active", "free_from", "highest")
_USED = native.METERS.index("used")
_FIRST_FILL = len(native.METERS)

State = Mapping[str, np.ndarray]


def meters_of_shard(meters: np.ndarray, shard: int, used: int) -> np.ndarray:
    """What of a table's meters `[M + V]` goes into the state of one shard; as long."""
    own = np.zeros_like(meters)
    if shard == 0:
        own[:_FIRST_FILL] = meters[:_FIRST_FILL]
    for name in _COMMON:
        own[native.METERS.index(name)] = meters[native.METERS.index(name)]
    own[_USED] = used
    own[_FIRST_FILL + shard] = meters[_FIRST_FILL + shard]
    return own


def whole(states: Sequence[State], sizes: native.IdSizes, label: str) -> dict[str, np.ndarray]:
    """The state of all shards, of the states of each, in any order.

    Args:
        states: of all V virtual shards, each once.
        sizes: of the table that they are for.
        label: what errors call it.

    Raises:
        ValueError: not the shards of one such table, all of them and of one step.
    """
    parts = {}
    for state in states:
        if "shard" not in state or np.shape(state["shard"]) != ():
            raise ValueError(
                f"{label}: one of {len(states)} states of its ids doesn't say of which virtual "
                "shard it is; state(shard) gives them"
            )
        part = dict(state)
        shard = int(part.pop("shard"))
        if shard in parts:
            raise ValueError(f"{label}: two states of virtual shard {shard} of its ids")
        check(part, sizes, label)
        parts[shard] = part
    if set(parts) != set(range(sizes.shards)):
        missing = sorted(set(range(sizes.shards)) - set(parts))
        what = f"shard {missing[0]} is missing" if missing else f"{max(parts)} isn't one of them"
        raise ValueError(
            f"{label}: states of {len(parts)} virtual shards of its ids, which has {sizes.shards}; "
            f"{what}"
        )
    ordered = [parts[shard] for shard in range(sizes.shards)]
    found = {
        name: np.concatenate([part[name] for part in ordered])
        for name in ordered[0]
        if name != "meters"
    }
    order = np.argsort(found["slots"], kind="stable")
    for name in (*ENTRIES, "pins"):
        found[name] = found[name][order]
    return {**found, "meters": _sum([part["meters"] for part in ordered], label)}


def _sum(meters: Sequence[np.ndarray], label: str) -> np.ndarray:
    total = np.sum(meters, axis=0)
    for name in _COMMON:
        at = native.METERS.index(name)
        values = {int(each[at]) for each in meters}
        if len(values) > 1:
            raise ValueError(
                f"{label}: the virtual shards of its ids' state are of different steps: {name} is "
                f"{', '.join(map(str, sorted(values)))}"
            )
        total[at] = values.pop()
    return total


def check(state: State, sizes: native.IdSizes, label: str) -> None:
    """Raises ValueError where arrays are missing, or none that such a table can have."""
    filtered = sizes.filter > 0
    wanted = {*ENTRIES, "pins", "meters", *(("filter", "filter_lines") if filtered else ())}
    if set(state) != wanted:
        raise ValueError(f"{label}: a state of ids has {sorted(wanted)}, not {sorted(state)}")
    count = len(state["ids"])
    lengths = dict.fromkeys((*ENTRIES, "pins"), count) | {"meters": sizes.meters}
    shapes: dict[str, tuple[int, ...]] = {name: (n,) for name, n in lengths.items()}
    if filtered:
        lines = len(state["filter_lines"])
        shapes |= {"filter_lines": (lines,), "filter": (lines, FILTER_LINE)}
    for name, shape in shapes.items():
        values = state[name]
        if values.shape != shape or values.dtype.kind not in "iu":
            raise ValueError(
                f"{label}: '{name}' of its ids' state is {values.dtype} {list(values.shape)}, not "
                f"integers {list(shape)}; the state is of another map, or broken"
            )
    lines = sizes.filter // FILTER_LINE
    given = state["filter_lines"] if filtered else np.zeros(0, np.int64)
    outside = np.any((given < 0) | (given >= lines)) or np.any(state["meters"] < 0)
    if outside or state["meters"][_USED] != count:
        raise ValueError(
            f"{label}: the meters of its ids' state don't fit its {count} ids; the state is of "
            "another map, or broken"
        )
