"""A row for every id, of memory that follows use."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from merlin_embeddings import config, native
from merlin_embeddings.ids import policies
from merlin_embeddings.ids.checks import check_range, set_policy
from merlin_embeddings.ids.table_map import IdTableMap, native_policy


@config.spec
@dataclasses.dataclass(frozen=True)
class Dynamic:
    """Each id that is trained gets a row of its own, the lowest that is free.

    Memory is reserved for `max_rows`, and used as far as rows were handed out: the vectors never
    move, and a row that was freed is used again. A row that got another id starts anew: its vector
    comes from the initializer, by the id, and what an optimizer keeps for it from its first value.

    Nothing changes unless the model trains; ids without a row have no vector.

    Args:
        initial: rows that the index has room for at first, in [1, max_rows]; it doubles.
        max_rows: how many ids can have rows at a time, at most 2**29.
        when_full: "error": a step that needs more rows than there are is an error and changes
            nothing. A policy ("lru", ...; see `ManagedCollision`, its `admit_probability` too): by
            it, other ids lose theirs.
        policy: with "error", what the scores are that `restrict` goes by; None: `ids.LRU()`.
        open_routes: rows stay with the ids of a step for at most so many newer steps, [0, 32767],
            should its update never come.

    Raises:
        ValueError: an argument out of range, or `policy` beside a policy for `when_full`.

    >>> Dynamic(initial=1000, max_rows=1_000_000)
    Dynamic(initial=1000, max_rows=1000000)
    >>> Dynamic(1000, 1_000_000, when_full="lru").rows
    1000000
    """

    initial: int
    max_rows: int
    when_full: Any = "error"
    policy: Any = None
    open_routes: int = 16

    stateful: ClassVar[bool] = True

    def __post_init__(self):
        check_range(self, "max_rows", 1, native.MAX_ROWS)
        check_range(self, "initial", 1, self.max_rows)
        check_range(self, "open_routes", 0, native.MAX_OPEN_ROUTES)
        if self.when_full != "error":
            set_policy(self, "when_full")
            if self.policy is not None:
                raise ValueError(
                    f"ids.Dynamic: policy={self.policy!r} beside when_full={self.when_full!r}; "
                    "what evicts is what scores. Leave policy= out."
                )
        elif self.policy is not None:
            set_policy(self, "policy")

    @property
    def rows(self) -> int:
        """`max_rows`."""
        return self.max_rows

    def rows_of(self, vocabulary_size: int | None) -> int:
        """`max_rows`, whatever the vocabulary."""
        del vocabulary_size
        return self.max_rows

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
        evict = self.when_full != "error"
        policy = self.when_full if evict else self.policy or policies.LRU()
        layout = native.IdLayout(
            "dynamic", self.max_rows, initial=self.initial, label=f"table '{name}'"
        )
        admission = native_policy(policy, contest=True, open_routes=self.open_routes, evict=evict)
        return IdTableMap(layout, policy, admission, add_weight, name)
