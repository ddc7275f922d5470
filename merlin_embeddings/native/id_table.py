"""The table from ids to rows that stateful id maps keep, one Python call for each thing it does.

Its state is a list of variables, `state_arrays` says which; all zeros are an empty table. Ops that
write give a buffer that somebody else holds up first, as all writing ops do.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.native.library import ops

# Places in the meters; `Meter` in ops/core/id_table.h.
METERS = (
    "clock",
    "released",
    "epoch",
    "epoch_began",
    "used",
    "active",
    "free_from",
    "highest",
    "looked_up",
    "hits",
    "inserted",
    "evicted",
    "not_admitted",
    "overflowed",
)
MAX_EPOCH = 4095
MAX_CAPACITY, MAX_ROWS = 2**30, 2**29
MAX_ADMIT_AFTER, MAX_OPEN_ROUTES = 255, 32767


@dataclasses.dataclass(frozen=True)
class IdLayout:
    """How large a table is: what its arrays' sizes follow from.

    Args:
        kind: "managed": the slot is the row; "dynamic": rows are handed out lowest first.
        capacity: ids that have rows of their own at a time; rounded up for the managed kind.
        initial: dynamic: ids that the index has room for at first.
        admit_after: managed: sightings after which an id gets a row.
        label: what errors call it.
    """

    kind: str
    capacity: int
    initial: int = 1
    admit_after: int = 1
    label: str = "ids"

    @property
    def sizes(self) -> IdSizes:
        """What the arrays' sizes are."""
        return _sizes(dataclasses.replace(self, label="ids"))

    def arguments(self) -> dict[str, Any]:
        """Of the ops."""
        return dataclasses.asdict(self)


class IdSizes(NamedTuple):
    """Sizes of a table's arrays; see `IdShape` in ops/core/id_table.h."""

    slots: int
    shards: int
    rows: int
    taken: int
    filter: int
    meters: int


@functools.lru_cache
def _sizes(layout: IdLayout) -> IdSizes:
    with tf.init_scope(), compat.on_host():
        sizes = ops.merlin_id_sizes(S=1, **layout.arguments())
    return IdSizes(*(int(size) for size in sizes.numpy()))


@dataclasses.dataclass(frozen=True)
class IdPolicy:
    """Which ids get rows, and which lose them; see `IdPolicy` in ops/core/id_table.h."""

    policy: str
    half_life: int = 1
    ttl: int = 1
    admit_probability: float = 1.0
    contest: bool = False
    open_routes: int = 16
    oov_rows: int = 0
    evict: bool = True

    def arguments(self) -> dict[str, Any]:
        """Of the ops."""
        return dataclasses.asdict(self)


class IdArray(NamedTuple):
    """One of the state's: zeros `[size]` at first."""

    name: str
    size: int
    dtype: tf.DType

    def zeros(self) -> tf.Tensor:
        """Its first value, which takes no memory before it is written."""
        return ops.merlin_lazy_zeros(size=self.size, dtype=self.dtype)


def state_arrays(layout: IdLayout) -> list[IdArray]:
    """The variables of a state, in the order in which the ops want them."""
    sizes = layout.sizes
    arrays = [
        IdArray("tags", sizes.slots, tf.uint8),
        IdArray("keys", sizes.slots, tf.int64),
        IdArray("scores", sizes.slots, tf.int32),
        IdArray("pins", sizes.slots, tf.uint16),
    ]
    if layout.kind == "dynamic":
        arrays += [IdArray("rows", sizes.slots, tf.int32), IdArray("taken", sizes.taken, tf.int64)]
    if sizes.filter:
        arrays.append(IdArray("filter", sizes.filter, tf.uint8))
    return [*arrays, IdArray("meters", sizes.meters, tf.int64)]


State = Sequence[tf.Variable]


def find_ids(
    state: State,
    layout: IdLayout,
    ids: Sequence[tf.Tensor],
    padding: Sequence[tf.Tensor | None],
    names: Sequence[str],
    oov_rows: int = 0,
) -> list[tf.Tensor]:
    """The rows of F features' ids; nothing changes.

    Args:
        state: variables as `state_arrays` says.
        layout: of the table.
        ids: F times `[N_f]` int64.
        padding: F times the id that has no row, int64 scalar, or None.
        names: what errors call the features.
        oov_rows: rows behind the others that unknown ids share by their hash; 0: row -1.

    Returns:
        F times `[N_f]` int64.
    """
    return list(
        ops.merlin_find_ids(
            state=[variable.handle for variable in state],
            ids=list(ids),
            padding=[value for value in padding if value is not None],
            padded=[value is not None for value in padding],
            names=list(names),
            oov_rows=oov_rows,
            **layout.arguments(),
        )
    )


def assign_ids(
    state: State,
    layout: IdLayout,
    policy: IdPolicy,
    ids: Sequence[tf.Tensor],
    padding: Sequence[tf.Tensor | None],
    counts: Sequence[tf.Tensor | None],
    scores: Sequence[tf.Tensor | None],
    names: Sequence[str],
) -> Any:
    """One training step's ids of all F features that share a table.

    Args:
        state, layout, ids, padding, names: as in `find_ids`.
        policy: of the table.
        counts: F times `[N_f]` int64, each at least 1, or None: 1 each.
        scores: F times `[N_f]` int64 in `[0, 2**32)` for the policy "custom", else None.

    Returns:
        `rows` (F times `[N_f]` int64), and the changes `changed`, `new_ids`, `old_ids` `[C]` int64
        and `had_old` `[C]` bool.

    Raises:
        tf.errors.InvalidArgumentError: counts or scores that can't be.
        tf.errors.ResourceExhaustedError: no rows left, where nothing may be evicted. Nothing has
            changed then, in either case.
    """
    return ops.merlin_assign_ids(
        state=[variable.handle for variable in state],
        ids=list(ids),
        padding=[value for value in padding if value is not None],
        counts=[value for value in counts if value is not None],
        scores=[value for value in scores if value is not None],
        padded=[value is not None for value in padding],
        counted=[value is not None for value in counts],
        scored=[value is not None for value in scores],
        names=list(names),
        **layout.arguments(),
        **policy.arguments(),
    )


def upsert_ids(
    state: State, layout: IdLayout, policy: IdPolicy, ids: tf.Tensor, scores: tf.Tensor | None
) -> Any:
    """Gives ids `[N]`, each once, rows without admission: `rows` `[N]`, and the changes."""
    return ops.merlin_upsert_ids(
        state=[variable.handle for variable in state],
        ids=ids,
        scores=[] if scores is None else [scores],
        **layout.arguments(),
        **policy.arguments(),
    )


def erase_ids(state: State, layout: IdLayout, ids: tf.Tensor) -> tf.Tensor:
    """Forgets ids `[N]`; the rows that they had, -1 where none."""
    return ops.merlin_erase_ids(
        state=[variable.handle for variable in state], ids=ids, **layout.arguments()
    )


def restrict_ids(
    state: State, layout: IdLayout, policy: IdPolicy, mode: str, value: int, keep: int
) -> Any:
    """Forgets ids of low scores; what they were: `slots`, `ids`, `rows`, `scores` `[K]` int64.

    Args:
        state, layout, policy: as in `assign_ids`.
        mode: "score": those below `value` go; "age": those last seen more than `value` steps ago;
            "count": those seen less than `value` times.
        value: what `mode` wants.
        keep: of the others, how many may stay.
    """
    return ops.merlin_restrict_ids(
        state=[variable.handle for variable in state],
        value=tf.constant(value, tf.int64),
        keep=tf.constant(keep, tf.int64),
        mode=mode,
        **layout.arguments(),
        **policy.arguments(),
    )


def id_entries(state: State, layout: IdLayout, shard: int = -1) -> Any:
    """The ids that have rows, of one shard or all: `slots`, `ids`, `rows`, `scores` `[K]` int64."""
    return ops.merlin_id_entries(
        state=[variable.handle for variable in state],
        shard=tf.constant(shard, tf.int64),
        **layout.arguments(),
    )


def place_ids(
    state: State,
    layout: IdLayout,
    slots: tf.Tensor,
    ids: tf.Tensor,
    rows: tf.Tensor,
    scores: tf.Tensor,
) -> tf.Operation | None:
    """Puts ids where `id_entries` found them, into a state of zeros but for its meters.

    Raises:
        tf.errors.InvalidArgumentError: an id isn't where it can be. Nothing is written then.
    """
    return ops.merlin_place_ids(
        state=[variable.handle for variable in state],
        slots=slots,
        ids=ids,
        rows=rows,
        scores=scores,
        **layout.arguments(),
    )


def release_ids(meters: tf.Variable, label: str) -> tf.Operation | None:
    """All steps so far have ended: the rows that they returned may go to others."""
    return ops.merlin_release_ids(meters=meters.handle, label=label)


def set_epoch(meters: tf.Variable, epoch: tf.Tensor, label: str) -> tf.Operation | None:
    """Tells the epoch, int64 scalar in `[0, MAX_EPOCH]`."""
    return ops.merlin_set_epoch(meters=meters.handle, epoch=epoch, label=label)


for _op in (
    "AssignIds",
    "FindIds",
    "UpsertIds",
    "EraseIds",
    "RestrictIds",
    "IdEntries",
    "IdSizes",
    "LazyZeros",
):
    tf.no_gradient(f"Merlin>{_op}")
