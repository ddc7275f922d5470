"""The contracts of id specs and of maps that depend on the id alone."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import tensorflow as tf


class IdSpec(Protocol):
    """What stands in `TableConfig.ids`: a frozen dataclass registered by `config.spec`."""

    def rows_of(self, vocabulary_size: int | None) -> int:
        """How many rows the table has; ValueError if the spec can't serve this vocabulary size."""

    def build(self, vocabulary_size: int | None) -> PureIdMap:
        """The map that gives ids their rows."""


class PureIdMap(abc.ABC):
    """A map whose row depends on the id alone: it holds no state, runs where the data is, and needs
    no distinct ids.

    Attributes:
        rows: how many rows it maps to; a row is in `[0, rows)`, or -1 for an id without a vector.
        takes_any: whether every int64 is an id, as hashed strings are.
        passes_on: whether `assign` hands ids on as they are and fails for any outside
            `[0, rows)`. A lookup that checks its lines anyway may take the ids then.
        strings: whether ids are strings (True), integers (False) or either (None).
    """

    rows: int
    takes_any: bool
    passes_on: bool = False
    strings: bool | None = None

    @property
    def weights(self) -> Mapping[str, Any]:
        """What the map looks ids up in, by name: weights of its owner that never change in
        training; none for most maps."""
        return {}

    def make(self, add_weight: Callable, name: str) -> None:
        """Makes the weights, if the map has some.

        Args:
            add_weight: the owning layer's.
            name: the table's or layer's, which theirs begin with.
        """
        del add_weight, name

    def assign(
        self,
        ids: tf.Tensor,
        counts: tf.Tensor | None = None,
        scores: tf.Tensor | None = None,
        training: bool = False,
        name: str = "ids",
    ) -> tuple[tf.Tensor, None]:
        """The rows of ids, and the changes made to the map: none, as it is pure.

        Args:
            ids: `[N]` int64.
            counts, scores: `[N]`, of no use to a pure map.
            training: of no use to a pure map.
            name: what the ids are, for messages.

        Returns:
            `(rows [N] int64, None)`.

        Raises:
            tf.errors.InvalidArgumentError: an id that the map refuses.
        """
        del counts, scores, training
        return self.assign_each([self], [ids], [name])[0], None

    @abc.abstractmethod
    def refuses(self, id: int) -> bool:
        """Whether `assign` fails for this id."""

    def accepted(self) -> Any:
        """An id that `assign` doesn't fail for, integer or scalar int64: padding's stand-in."""
        return 0

    @classmethod
    @abc.abstractmethod
    def assign_each(
        cls, maps: Sequence[Self], ids: Sequence[tf.Tensor], names: Sequence[str]
    ) -> list[tf.Tensor]:
        """`maps[i].assign(ids[i], name=names[i])` for all i, in one native call.

        All maps are of this class; an id tensor is `[N_i]` int64.
        """
