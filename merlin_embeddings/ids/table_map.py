"""The map of `ManagedCollision` and `Dynamic`: a native table from ids to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings import compat, config, native
from merlin_embeddings.ids import policies, table_state
from merlin_embeddings.ids.checks import as_ids, as_integers
from merlin_embeddings.ids.stateful import Changes, Known, StatefulIdMap


class IdTableMap(StatefulIdMap):
    """Ids own rows as long as the policy lets them.

    Args:
        layout: how large the table is.
        policy: who goes when there is no room.
        admission: of new ids, and how many steps rows stay with their ids at most.
        add_weight: the layer's `add_weight`.
        name: of the table.
    """

    def __init__(
        self,
        layout: native.IdLayout,
        policy: policies.Policy,
        admission: native.IdPolicy,
        add_weight: Callable,
        name: str,
    ) -> None:
        self.name = name
        self.policy = policy
        self._layout = layout
        self._policy = admission
        self.capacity = layout.sizes.rows
        self.rows = self.capacity + admission.oov_rows
        self.shards = layout.sizes.shards
        self._arrays = native.state_arrays(layout)
        with compat.on_host():
            self.variables = [self._add(array, add_weight) for array in self._arrays]

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self.name}', capacity={self.capacity}, {self.policy!r})"

    # A step

    def assign_features(
        self,
        ids: Sequence[tf.Tensor],
        *,
        padding: Sequence[int | tf.Tensor | None] | None = None,
        counts: Sequence[tf.Tensor | None] | None = None,
        scores: Sequence[tf.Tensor | None] | None = None,
        training: bool = False,
        names: Sequence[str] | None = None,
    ) -> tuple[list[tf.Tensor], Changes | None]:
        nothing = [None] * len(ids)
        names = [self._label] * len(ids) if names is None else names
        ids = [as_ids(value, name) for value, name in zip(ids, names, strict=True)]
        pads = [_int64(value, "padding", self._label) for value in padding or nothing]
        if not training:
            oov_rows = self._policy.oov_rows
            return native.find_ids(self._state, self._layout, ids, pads, names, oov_rows), None
        scores = nothing if scores is None else scores
        self._check_scores(scores, names)
        step = native.assign_ids(
            self._state,
            self._layout,
            self._policy,
            ids,
            pads,
            [_int64(v, "counts", name) for v, name in zip(counts or nothing, names, strict=True)],
            [_int64(v, "scores", name) for v, name in zip(scores, names, strict=True)],
            names,
        )
        return list(step.rows), _changes(step)

    def find(self, ids: tf.Tensor, name: str | None = None) -> tf.Tensor:
        name = self._label if name is None else name
        return native.find_ids(self._state, self._layout, [as_ids(ids, name)], [None], [name])[0]

    def release(self) -> Any:
        return native.release_ids(self._meters, self._label)

    def set_epoch(self, epoch: int | tf.Tensor) -> Any:
        if not isinstance(self.policy, (policies.EpochLRU, policies.EpochLFU)):
            raise ValueError(
                f"{self._label}: its policy {self.policy!r} knows no epochs; use ids.EpochLRU() "
                "or ids.EpochLFU()."
            )
        return native.set_epoch(
            self._meters, as_integers(epoch, "epochs", self._label), self._label
        )

    # Single ids

    def upsert(self, ids: tf.Tensor, scores: tf.Tensor | None = None) -> tuple[tf.Tensor, Changes]:
        done = native.upsert_ids(
            self._state,
            self._layout,
            self._policy,
            as_ids(ids, self._label),
            _int64(scores, "scores", self._label),
        )
        return done.rows, _changes(done)

    def erase(self, ids: tf.Tensor) -> tf.Tensor:
        return native.erase_ids(self._state, self._layout, as_ids(ids, self._label))

    def restrict(
        self,
        *,
        size: int | None = None,
        max_age: int | None = None,
        min_count: int | None = None,
        min_score: int | None = None,
    ) -> Known:
        limits = {
            "size": size,
            "max_age": max_age,
            "min_count": min_count,
            "min_score": min_score,
        }
        given = {what: value for what, value in limits.items() if value is not None}
        if len(given) != 1:
            raise ValueError(
                f"{self._label}: restrict() takes one of size, max_age, min_count and min_score, "
                f"not {given or 'none'}."
            )
        [(what, value)] = given.items()
        if not config.is_int(value) or value < 0 or value >= 2**62:
            raise ValueError(
                f"{self._label}: restrict({what}={value!r}); it must be an integer of at least 0."
            )
        self._check_can_tell(what)
        mode = {"max_age": "age", "min_count": "count"}.get(what, "score")
        lowest, keep = (0, value) if what == "size" else (value, self.capacity)
        gone = native.restrict_ids(self._state, self._layout, self._policy, mode, lowest, keep)
        return Known(gone.ids.numpy(), gone.rows.numpy(), gone.scores.numpy())

    def known(self, chunk: int = 65536, shard: int | None = None) -> Iterator[Known]:
        if chunk < 1:
            raise ValueError(f"{self._label}: chunk must be at least 1, got {chunk}")
        if shard is not None:
            self._check_shard(shard)
        return self._known(chunk, range(self.shards) if shard is None else [shard])

    def _known(self, chunk: int, shards: Iterable[int]) -> Iterator[Known]:
        for shard in shards:
            found = native.id_entries(self._state, self._layout, shard)
            ids, rows, scores = found.ids.numpy(), found.rows.numpy(), found.scores.numpy()
            for at in range(0, len(ids), chunk):
                part = slice(at, at + chunk)
                yield Known(ids[part], rows[part], scores[part])

    def used(self) -> tf.Tensor:
        return self._meter("used")

    def statistics(self) -> dict[str, tf.Tensor]:
        meters = self._meters.sparse_read(tf.range(len(native.METERS)))
        of = dict(zip(native.METERS, tf.unstack(meters), strict=True))
        counted = ("looked_up", "hits", "inserted", "evicted", "not_admitted", "overflowed")
        return {
            **{name: of[name] for name in counted},
            "used": of["used"],
            "capacity": tf.constant(self.capacity, tf.int64),
            "steps": of["clock"],
        }

    # State

    def state(self, shard: int | None = None) -> dict[str, np.ndarray]:
        if shard is not None:
            self._check_shard(shard)
        sizes = self._layout.sizes
        entries = native.id_entries(self._state, self._layout, -1 if shard is None else shard)
        found = {name: getattr(entries, name).numpy() for name in table_state.ENTRIES}
        found["pins"] = self._array("pins").sparse_read(entries.slots).numpy()
        if sizes.filter:
            size = sizes.filter if shard is None else sizes.filter // self.shards
            first = 0 if shard is None else size * shard
            values = self._array("filter").sparse_read(tf.range(first, first + size)).numpy()
            lines = values.reshape(-1, table_state.FILTER_LINE)
            used = np.flatnonzero(lines.any(1))
            found["filter_lines"] = used + first // table_state.FILTER_LINE
            found["filter"] = lines[used]
        found["meters"] = self._meters.numpy()
        if shard is not None:
            meters, count = found["meters"], len(found["ids"])
            found["meters"] = table_state.meters_of_shard(meters, shard, count)
            found["shard"] = np.asarray(shard, np.int64)
        return found

    def restore(self, state: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]]) -> None:
        sizes = self._layout.sizes
        if isinstance(state, Mapping):
            state = {name: np.asarray(values) for name, values in state.items()}
            table_state.check(state, sizes, self._label)
        else:
            parts = [{name: np.asarray(each) for name, each in part.items()} for part in state]
            state = table_state.whole(parts, sizes, self._label)
        before = [variable.read_value() for variable in self._state]
        try:
            self._put(state)
        except Exception:
            for variable, value in zip(self._state, before, strict=True):
                variable.assign(value)
            raise

    def clear(self) -> None:
        """Forgets everything, as if it were new."""
        for variable, array in zip(self._state, self._arrays, strict=True):
            with compat.on_host():
                variable.assign(array.zeros())

    # Parts

    def _add(self, array: native.IdArray, add_weight: Callable) -> Any:
        return add_weight(
            shape=(array.size,),
            initializer=lambda *_, **__: array.zeros(),
            dtype=array.dtype.name,
            trainable=False,
            autocast=False,
            name=compat.weight_name(f"{self.name}_{array.name}"),
        )

    @property
    def _label(self) -> str:
        return f"table '{self.name}'"

    @property
    def _state(self) -> list[tf.Variable]:
        return [compat.raw_variable(variable) for variable in self.variables]

    @property
    def _meters(self) -> tf.Variable:
        return self._array("meters")

    def _array(self, name: str) -> tf.Variable:
        names = [array.name for array in self._arrays]
        return compat.raw_variable(self.variables[names.index(name)])

    def _meter(self, name: str) -> tf.Tensor:
        return self._meters.sparse_read(native.METERS.index(name))

    def _check_shard(self, shard: int) -> None:
        if not config.is_int(shard) or not 0 <= shard < self.shards:
            raise ValueError(
                f"{self._label}: virtual shard {shard!r}; it has {self.shards}, from 0"
            )

    def _check_scores(self, scores: Sequence[Any], names: Sequence[str]) -> None:
        wanted = isinstance(self.policy, policies.Custom)
        for given, name in zip(scores, names, strict=True):
            if wanted and given is None:
                raise ValueError(
                    f"{name}: the policy Custom goes by scores; give scores=, one an id, in "
                    "[0, 2**32), or Bags that have them."
                )
            if given is not None and not wanted:
                raise ValueError(
                    f"{name}: scores are for the policy ids.Custom(); {self.policy!r} makes its "
                    "own. Leave scores= out, or choose policy='custom'."
                )

    def _check_can_tell(self, what: str) -> None:
        able = {"max_age": self.policy.by_age, "min_count": self.policy.by_count}.get(what, True)
        if not able:
            others = "ids.LRU and ids.TTL" if what == "max_age" else "ids.LFU"
            raise ValueError(
                f"{self._label}: restrict({what}=) is for {others}, whose scores tell it; "
                f"{self.policy!r} takes size= or min_score=."
            )

    def _put(self, state: Mapping[str, np.ndarray]) -> None:
        self.clear()
        self._meters.assign(state["meters"].astype(np.int64))
        try:
            native.place_ids(
                self._state,
                self._layout,
                *(tf.constant(state[name].astype(np.int64)) for name in table_state.ENTRIES),
            )
        except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
            raise ValueError(error.message) from None
        slots = tf.constant(state["slots"].astype(np.int64))
        pins = tf.constant(state["pins"].astype(np.uint16))
        native.write_rows(self._array("pins"), slots, pins, self._label)
        if self._layout.sizes.filter:
            lines = state["filter_lines"].astype(np.int64)
            places = lines[:, np.newaxis] * table_state.FILTER_LINE + np.arange(
                table_state.FILTER_LINE
            )
            native.write_rows(
                self._array("filter"),
                tf.constant(places.ravel()),
                tf.constant(state["filter"].astype(np.uint8).ravel()),
                self._label,
            )


def native_policy(policy: policies.Policy, **admission: Any) -> native.IdPolicy:
    """What the native table is told of a policy, and of admission (the rest of `IdPolicy`)."""
    if isinstance(policy, policies.LFU) and policy.half_life is not None:
        return native.IdPolicy("decayed_lfu", half_life=policy.half_life, **admission)
    if isinstance(policy, policies.TTL):
        return native.IdPolicy(policy.kind, ttl=policy.steps, **admission)
    return native.IdPolicy(policy.kind, **admission)


def _int64(values: Any, what: str, name: str) -> Any:
    return None if values is None else as_integers(values, what, name)


def _changes(step: Any) -> Changes:
    return Changes(step.changed, step.new_ids, step.old_ids, step.had_old)
