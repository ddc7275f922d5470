"""Row = id."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

import tensorflow as tf

from merlin_embeddings import config, native
from merlin_embeddings.ids.base import PureIdMap

POLICIES = ("error", "zero", "clip")


@config.spec
@dataclasses.dataclass(frozen=True)
class Identity:
    """The row of an id is the id; ids are in `[0, vocabulary_size)`.

    Args:
        out_of_range: what other ids are. "error": an error that names table, feature and id.
            "zero": ids without a vector. "clip": the nearest id in range.

    Raises:
        ValueError: `out_of_range` is none of these.

    >>> import tensorflow as tf
    >>> ids = tf.constant([2, 3, -1], tf.int64)
    >>> rows, _ = Identity("zero").build(vocabulary_size=3).assign(ids)
    >>> rows.numpy().tolist()
    [2, -1, -1]
    """

    out_of_range: str = "error"

    def __post_init__(self):
        if self.out_of_range not in POLICIES:
            raise ValueError(
                f"ids.Identity: out_of_range={self.out_of_range!r}; it must be one of "
                f"{', '.join(map(repr, POLICIES))}."
            )

    def rows_of(self, vocabulary_size: int | None) -> int:
        """`vocabulary_size`."""
        if vocabulary_size is None or not config.is_row_count(vocabulary_size):
            raise ValueError(
                "ids.Identity needs a vocabulary_size, a positive integer, not "
                f"{vocabulary_size!r}; an open id space needs other ids, such as ids.Modulo(rows)."
            )
        return vocabulary_size

    def build(self, vocabulary_size: int | None) -> IdentityMap:
        """The map for ids in `[0, vocabulary_size)`."""
        return IdentityMap(self.rows_of(vocabulary_size), self.out_of_range)


class IdentityMap(PureIdMap):
    """Row = id; see `Identity`. "error" hands the ids on uncopied."""

    takes_any = False

    def __init__(self, rows: int, out_of_range: str):
        self.rows = rows
        self.out_of_range = out_of_range
        self.passes_on = out_of_range == "error"

    def refuses(self, id: int) -> bool:
        return self.out_of_range == "error" and not 0 <= id < self.rows

    @classmethod
    def assign_each(
        cls, maps: Sequence[Self], ids: Sequence[tf.Tensor], names: Sequence[str]
    ) -> list[tf.Tensor]:
        return native.check_range(
            ids, [m.rows for m in maps], [m.out_of_range for m in maps], names
        )
