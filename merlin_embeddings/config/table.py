"""`TableConfig`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from merlin_embeddings.config.checks import check_name, is_int, is_row_count, one_of
from merlin_embeddings.config.specs import fields_of, spec, to_plain

PLACEMENTS = ("auto", "host")
DTYPES = ("float32", "bfloat16", "float16")

_field_rules: dict[str, Callable[[Any], Any]] = {}


def field_rule(field: str, rule: Callable[[Any], Any]) -> None:
    """Lets the room that knows what a field of `TableConfig` means say what it may be.

    Args:
        field: its name.
        rule: gives what the config keeps of a value, or raises ValueError.
    """
    _field_rules[field] = rule


@spec
@dataclasses.dataclass(frozen=True)
class TableConfig:
    """One logical table: `[rows, embedding_dim]` vectors under one name.

    Args:
        name: the table's name; tables are shared by name within one layer.
        vocabulary_size: ids are in `[0, vocabulary_size)`; None: the id space is open, and `ids`
            says how many rows there are, or `compression` does.
        embedding_dim: length D of a vector.
        ids: which row an id has, a spec of `merlin_embeddings.ids`. None: row = id, ids out of
            range are an error.
        compression: how a vector is made of rows, a spec of `merlin_embeddings.tables` such as
            `tables.Bloom(rows)`. None: a row is a vector.
        placement: where the rows live. "auto" and "host": in the memory of the process.
        dtype: of the rows at rest: "float32", "bfloat16" or "float16". Looked-up vectors are
            float32 before they are cast to the layer's compute dtype.
        initializer: a name, a spec of `merlin_embeddings.initializers`, a Keras initializer, or an
            array `[rows, embedding_dim]`, say trained vectors (a memory-mapped one too). Its values
            aren't part of plain data: they come back with the weights.
        regularizer: a Keras regularizer; acts on the distinct rows looked up.
        constraint: a Keras constraint; acts on the rows looked up.
        seed: of the initializer. None: drawn when the table is built.
        trainable: False freezes the rows.

    Raises:
        ValueError: a field has a value that no table can have; the message names table and field.

    >>> TableConfig("item", vocabulary_size=1000, embedding_dim=16, dtype="bfloat16")
    TableConfig(name='item', vocabulary_size=1000, embedding_dim=16, dtype='bfloat16')
    """

    name: str
    vocabulary_size: int | None
    embedding_dim: int
    ids: Any = None
    compression: Any = None
    placement: Any = "auto"
    dtype: str = "float32"
    initializer: Any = "uniform"
    regularizer: Any = None
    constraint: Any = None
    seed: int | None = None
    trainable: bool = True

    def __post_init__(self):
        check_name("TableConfig", self.name)
        object.__setattr__(self, "dtype", getattr(self.dtype, "name", self.dtype))
        if self.vocabulary_size is not None:
            self._check_size("vocabulary_size")
        self._check_size("embedding_dim")
        self._check_ids()
        self._check_compression()
        if self.placement not in PLACEMENTS:
            self._refuse("placement", f"one of {one_of(PLACEMENTS)}")
        if self.dtype not in DTYPES:
            self._refuse("dtype", f"one of {one_of(DTYPES)}")
        if self.seed is not None and not is_int(self.seed):
            self._refuse("seed", "an integer or None")
        if not isinstance(self.trainable, bool):
            self._refuse("trainable", "True or False")
        for field, rule in _field_rules.items():
            try:
                object.__setattr__(self, field, rule(getattr(self, field)))
            except ValueError as error:
                raise ValueError(f"TableConfig {self.name!r}: {error}") from None

    @property
    def rows(self) -> int:
        """How many rows the table has; of a compressed one, the rows of its parameters."""
        if self.compression is not None:
            return self.compression.shape(self.embedding_dim)[0]
        if self.ids is not None:
            return self.ids.rows_of(self.vocabulary_size)
        assert self.vocabulary_size is not None  # checked when the config was made
        return self.vocabulary_size

    def to_dict(self) -> dict[str, Any]:
        """This config as plain JSON data."""
        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TableConfig:
        """The config that `to_dict` made `data` of."""
        return cls(**fields_of(data))

    def _check_size(self, field: str) -> None:
        value = getattr(self, field)
        if not is_row_count(value):
            self._refuse(field, "a positive integer")
        object.__setattr__(self, field, int(value))

    def _check_ids(self) -> None:
        if self.ids is None:
            if self.vocabulary_size is None and self.compression is None:
                self._refuse(
                    "vocabulary_size",
                    "a positive integer, or None together with ids= that have rows of their own, "
                    "such as ids.Modulo(rows)",
                )
            return
        if not hasattr(self.ids, "rows_of"):
            self._refuse("ids", "None or a spec of merlin_embeddings.ids, such as ids.Modulo(rows)")
        try:
            self.ids.rows_of(self.vocabulary_size)
        except ValueError as error:
            raise ValueError(f"TableConfig {self.name!r}: {error}") from None

    def _check_compression(self) -> None:
        if self.compression is None:
            return
        if not hasattr(self.compression, "shape"):
            self._refuse(
                "compression",
                "None (a row is a vector) or a spec of merlin_embeddings.tables, such as "
                "tables.Bloom(rows)",
            )
        try:
            self.compression.shape(self.embedding_dim)
        except ValueError as error:
            raise ValueError(f"TableConfig {self.name!r}: {error}") from None

    def _refuse(self, field: str, wanted: str) -> None:
        raise ValueError(
            f"TableConfig {self.name!r}: {field}={getattr(self, field)!r}; it must be {wanted}."
        )
