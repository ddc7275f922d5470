"""Bounded rows for ids that never stop coming: those that matter own one each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from merlin_embeddings import config, native
from merlin_embeddings.ids import policies
from merlin_embeddings.ids.checks import check_range, set_policy
from merlin_embeddings.ids.table_map import IdTableMap, native_policy

_LFU = policies.LFU()


@config.spec
@dataclasses.dataclass(frozen=True)
class ManagedCollision:
    """Ids own rows; when there is no room, the id of the lowest score goes.

    An id has two places to be, 32 slots in all; what goes for it is the lowest score of these. A
    row that got another id starts anew: its vector comes from the initializer, by the id, and what
    an optimizer keeps for it from its first value. Ids without a row of their own have no vector,
    or one of the OOV rows by their hash.

    Nothing changes unless the model trains. In training the rows of a step stay with their ids
    until its update has run.

    Args:
        capacity: how many ids can have rows at a time, at most 2**30. Rounded up to whole buckets
            of 16, by less than 1/64 where it is over 2,048; `rows` says what became of it.
        policy: "lru", "lfu", "epoch_lru", "epoch_lfu", "custom", or one of `ids.LRU`, `ids.LFU`,
            `ids.EpochLRU`, `ids.EpochLFU`, `ids.TTL`, `ids.Custom`.
        admit_after: an id may get a row at its n-th sighting, n in [1, 255].
        admit_probability: an id gets a row with this probability in each step that sees it,
            whatever goes for it; which ids do is a function of (id, step). 1: always. None: as
            the policy has it. By LFU and EpochLFU an id that was seen more often than the one that
            would go for it takes its row; another one does so with probability 1 / (the other's
            count + 1) for each sighting, and counts as often as the other then ("randomized
            admission policy", Ben Basat et al., 2019). By Custom one of a lower score doesn't. By
            the others, always.
        oov_rows: rows behind the others that ids without rows of their own share. 0: no vector.
        open_routes: rows stay with the ids of a step for at most so many newer steps, [0, 32767],
            should its update never come.

    Raises:
        ValueError: an argument out of range, or `admit_after` and `admit_probability` together.

    >>> ManagedCollision(capacity=1_000_000, policy="lfu", admit_after=3)
    ManagedCollision(capacity=1000000, admit_after=3)
    >>> ManagedCollision(100, oov_rows=4).rows
    116
    """

    capacity: int
    policy: Any = _LFU
    admit_after: int = 1
    admit_probability: float | None = None
    oov_rows: int = 0
    open_routes: int = 16

    stateful: ClassVar[bool] = True

    def __post_init__(self):
        check_range(self, "capacity", 1, native.MAX_CAPACITY)
        set_policy(self, "policy")
        check_range(self, "admit_after", 1, native.MAX_ADMIT_AFTER)
        check_range(self, "oov_rows", 0, native.MAX_CAPACITY)
        check_range(self, "open_routes", 0, native.MAX_OPEN_ROUTES)
        _check_probability(self)

    @property
    def rows(self) -> int:
        """How many rows the table has: the capacity, rounded up, and the OOV rows."""
        return self._layout("ids").sizes.rows + self.oov_rows

    def rows_of(self, vocabulary_size: int | None) -> int:
        """`rows`, whatever the vocabulary."""
        del vocabulary_size
        return self.rows

    def build(
        self, vocabulary_size: int | None = None, *, add_weight: Callable, name: str
    ) -> IdTableMap:
        """The map, its state in variables of a layer.

        Args:
            vocabulary_size: of no use.
            add_weight: the layer's `add_weight`.
            name: of the table.
        """
        del vocabulary_size
        admission = native_policy(
            self.policy,
            contest=self.admit_probability is None,
            admit_probability=1.0 if self.admit_probability is None else self.admit_probability,
            oov_rows=self.oov_rows,
            open_routes=self.open_routes,
        )
        label = f"table '{name}'"
        return IdTableMap(self._layout(label), self.policy, admission, add_weight, name)

    def _layout(self, label: str) -> native.IdLayout:
        return native.IdLayout("managed", self.capacity, admit_after=self.admit_after, label=label)


def _check_probability(spec: ManagedCollision) -> None:
    value = spec.admit_probability
    if value is None:
        return
    is_number = isinstance(value, float) or config.is_int(value)
    if not is_number or not 0 < value <= 1:
        raise ValueError(
            f"ids.ManagedCollision: admit_probability={value!r}; it must be in (0, 1], or None."
        )
    if spec.admit_after > 1:
        raise ValueError(
            f"ids.ManagedCollision: admit_after={spec.admit_after} and admit_probability={value}; "
            "give one of them."
        )
    object.__setattr__(spec, "admit_probability", float(value))
