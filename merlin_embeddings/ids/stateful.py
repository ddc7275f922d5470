"""The contract of maps that remember ids: which row an id has depends on what came before."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Changes(NamedTuple):
    """The rows that a map gave to other ids, C of them, each once.

    Their vectors, and all that is attached to the rows, start anew before they are looked up.

    Attributes:
        rows: `[C]` int64.
        new_ids: `[C]` int64, whose they are now.
        old_ids: `[C]` int64, whose they were; 0 where `had_old` is False.
        had_old: `[C]` bool.
    """

    rows: tf.Tensor
    new_ids: tf.Tensor
    old_ids: tf.Tensor
    had_old: tf.Tensor


class Known(NamedTuple):
    """Ids that have rows, N of them.

    Attributes:
        ids: `[N]` int64.
        rows: `[N]` int64.
        scores: `[N]` int64, what the policy makes of them: the lowest goes first.
    """

    ids: np.ndarray
    rows: np.ndarray
    scores: np.ndarray


class StatefulIdMap(abc.ABC):
    """A map whose rows belong to ids: it gives rows to new ids, and takes them from others.

    Its state is in variables of the layer that owns it. The result of `assign` doesn't depend on
    the order of the ids, nor on threads.

    Attributes:
        name: the table's, for messages.
        capacity: how many ids can have a row of their own at a time.
        rows: how many rows it maps to: `capacity`, and OOV rows behind them.
        shards: how many virtual shards its ids fall into, by their hash; a function of `capacity`
            alone.
        takes_any: every int64 is an id, as hashed strings are.
        passes_on: `assign` never hands ids on as they are.
        variables: its state, in a stated order; none is trainable.
    """

    name: str
    capacity: int
    rows: int
    shards: int
    takes_any: bool = True
    passes_on: bool = False
    variables: Sequence[Any]

    def refuses(self, id: int) -> bool:
        """Whether `assign` fails for this id: never."""
        del id
        return False

    def assign(
        self,
        ids: tf.Tensor,
        counts: tf.Tensor | None = None,
        scores: tf.Tensor | None = None,
        training: bool = False,
        name: str = "ids",
    ) -> tuple[tf.Tensor, Changes | None]:
        """The rows of one feature's ids; see `assign_features`."""
        rows, changes = self.assign_features(
            [ids], counts=[counts], scores=[scores], training=training, names=[name]
        )
        return rows[0], changes

    @abc.abstractmethod
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
        """The rows of the ids of F features, in one native call: one step of the map.

        In training the ids are counted, new ones may get rows, others may lose theirs, and the
        rows returned stay with their ids until `release`, or until so many newer calls as the map
        was told. Otherwise nothing changes: ids that the map doesn't know have no row of their own.

        Args:
            ids: F times `[N_f]` integers; an id may come often.
            padding: of each feature, the id that has no row and isn't counted, or None.
            counts: of each feature `[N_f]` integers, how often an id was seen, or None: once each.
                What is above 2**32 - 1 counts as that.
            scores: of each feature `[N_f]` integers in `[0, 2**32)`, or None; of an id that comes
                often the highest counts. For the policy `Custom`, which wants them in training.
            training: whether the step trains.
            names: what messages call the features.

        Returns:
            F times rows `[N_f]` int64 (-1: no vector), and the changes; None if not training.

        Raises:
            TypeError: ids, counts or scores that are no integers, or ids in uint64.
            ValueError: scores missing for `Custom`, or given for another policy; ids that are no
                vector.
            tf.errors.InvalidArgumentError: counts or scores of another length, or out of range.
            tf.errors.ResourceExhaustedError: no rows left, where nothing may be evicted. Nothing
                has changed then, in either case.
        """

    @abc.abstractmethod
    def find(self, ids: tf.Tensor, name: str = "ids") -> tf.Tensor:
        """The rows `[N]` int64 of ids `[N]`: their own, or -1; OOV rows aren't their own."""

    @abc.abstractmethod
    def release(self) -> Any:
        """Says that all steps so far have ended: their rows may go to others.

        Returns:
            The operation; None in eager mode.
        """

    @abc.abstractmethod
    def upsert(self, ids: tf.Tensor, scores: tf.Tensor | None = None) -> tuple[tf.Tensor, Changes]:
        """Gives ids rows whether or not they would be admitted; no step of training.

        Args:
            ids: `[N]` int64; of an id that comes twice, the last score counts.
            scores: `[N]` int64 in `[0, 2**32)`, as `known` tells them; None: those of new ids are
                as if they were seen once, now; the others keep theirs.

        Returns:
            Rows `[N]` int64, and the changes. -1: no row, as all that the id could have are in use,
            or as another id of the call took it.

        Raises:
            tf.errors.InvalidArgumentError: a score out of range, or another number of them.
            tf.errors.ResourceExhaustedError: no rows left, where nothing may be evicted. Nothing
                has changed then, in either case.
        """

    @abc.abstractmethod
    def erase(self, ids: tf.Tensor) -> tf.Tensor:
        """Forgets ids.

        Args:
            ids: `[N]` int64; unknown ones are no error.

        Returns:
            `[N]` int64, the rows that they had, or -1.
        """

    @abc.abstractmethod
    def restrict(
        self,
        *,
        size: int | None = None,
        max_age: int | None = None,
        min_count: int | None = None,
        min_score: int | None = None,
    ) -> Known:
        """Forgets the ids that matter least.

        Args:
            size: keep at most so many, those with the highest scores.
            max_age: forget what was last seen more than so many training steps ago (LRU, TTL).
            min_count: forget what was counted less often (LFU).
            min_score: forget what has a lower score.

        Returns:
            What was forgotten. Rows that a step still needs stay (see `release`).

        Raises:
            ValueError: not exactly one of them is given, or the policy doesn't have it.
        """

    @abc.abstractmethod
    def known(self, chunk: int = 65536, shard: int | None = None) -> Iterator[Known]:
        """The ids that have rows, at most `chunk` at a time, in an order that stays as it is.

        Those of virtual shard 0 come first, then those of shard 1, and so on; or those of one.
        """

    @abc.abstractmethod
    def used(self) -> tf.Tensor:
        """How many ids have rows: int64 scalar."""

    @abc.abstractmethod
    def statistics(self) -> dict[str, tf.Tensor]:
        """What training steps have met so far, int64 scalars.

        - `looked_up`: lookups, padding left out; `hits`: of these, of ids with rows;
        - `inserted`, `evicted`: ids that got or lost a row;
        - `not_admitted`: lookups of ids that got none by the policy (yet); `overflowed`: of those
          that got none because all rows that they could have were in use;
        - `used`, `capacity`; `steps`.
        """

    @abc.abstractmethod
    def set_epoch(self, epoch: int | tf.Tensor) -> Any:
        """Tells policies that think in epochs which one it is, in `[0, 4096)`."""

    @abc.abstractmethod
    def state(self, shard: int | None = None) -> dict[str, np.ndarray]:
        """All that `restore` needs for a run to go on as if it hadn't stopped; used slots only.

        Args:
            shard: a virtual shard in `[0, shards)`: its part, of which it is the smallest there
                is; None: all. Parts may be written by any number of processes and read by any
                other number: what fits together is the parts of all shards, of one step, however
                they came.

        Returns:
            Arrays by name, of U ids: `ids`, `rows`, `scores`, `slots`, `pins` `[U]`, the filter's
            lines in use, and `meters`; of a part `shard`, a scalar, too. Of a managed map the rows
            of a shard are a range, `[shard, shard + 1) * capacity / shards`. Those of a dynamic map
            come from one free list: its parts fit together in a map that has all of them, and in
            no other. (Where a dynamic table is divided among processes, each process has a free
            list of its own; from another number of them its ids come by `upsert`, with scores,
            and get rows anew.)
        """

    @abc.abstractmethod
    def restore(self, state: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]]) -> None:
        """Becomes what `state` was taken of.

        Args:
            state: what `state()` gave, or the parts of all virtual shards, in any order.

        Raises:
            ValueError: a state of another map, one that can't be, or parts that are missing, come
                twice or are of different steps. Nothing has changed then.
        """
