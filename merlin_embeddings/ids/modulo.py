"""Row = id modulo the number of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Self

import tensorflow as tf

from merlin_embeddings import config, native
from merlin_embeddings.ids.base import PureIdMap


@config.spec
@dataclasses.dataclass(frozen=True)
class Modulo:
    """The row of an id is `id mod rows`, in `[0, rows)`: every int64 is an id, ids share rows.

    The "hashing trick" (Weinberger et al., "Feature Hashing for Large Scale Multitask Learning",
    2009) for ids that are spread evenly already, as hashed strings are.

    Args:
        rows: how many rows the table has.

    Raises:
        ValueError: `rows` isn't a positive integer.

    >>> import tensorflow as tf
    >>> rows, _ = Modulo(10).build().assign(tf.constant([3, 13, -1], tf.int64))
    >>> rows.numpy().tolist()
    [3, 3, 9]
    """

    rows: int

    def __post_init__(self):
        if not config.is_row_count(self.rows):
            raise ValueError(f"ids.Modulo: rows={self.rows!r}; it must be a positive integer.")

    def rows_of(self, vocabulary_size: int | None) -> int:
        """`rows`, whatever the vocabulary."""
        del vocabulary_size
        return self.rows

    def build(self, vocabulary_size: int | None = None) -> ModuloMap:
        """The map to `[0, rows)`."""
        return ModuloMap(self.rows_of(vocabulary_size))


class ModuloMap(PureIdMap):
    """Row = id modulo rows; see `Modulo`."""

    takes_any = True

    def __init__(self, rows: int):
        self.rows = rows

    def refuses(self, id: int) -> bool:
        return False

    @classmethod
    def assign_each(
        cls, maps: Sequence[Self], ids: Sequence[tf.Tensor], names: Sequence[str]
    ) -> list[tf.Tensor]:
        del names  # no id is refused
        return native.modulo(ids, [m.rows for m in maps])
