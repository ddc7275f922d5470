"""`FeatureConfig`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from merlin_embeddings.config.checks import check_name, is_int, one_of
from merlin_embeddings.config.specs import fields_of, spec, to_plain
from merlin_embeddings.config.table import TableConfig

COMBINERS = ("sum", "mean", "sqrtn", "max", None)


@spec
@dataclasses.dataclass(frozen=True)
class FeatureConfig:
    """One feature: a bag of ids in each sample, looked up in a table and combined to one vector.

    Args:
        name: the feature's name, used in messages.
        table: its table; features may share one.
        combiner: "sum", "mean", "sqrtn" or "max" over the bag; None: no pooling, one vector an id.
        padding_id: this id (an integer, or a string for string features) has no vector: it doesn't
            count in sum, divisor or maximum.

    Raises:
        ValueError: a field has a value that no feature can have.

    >>> item = TableConfig("item", vocabulary_size=1000, embedding_dim=16)
    >>> FeatureConfig("history", item, combiner="sum").combiner
    'sum'
    """

    name: str
    table: TableConfig
    combiner: str | None = "mean"
    padding_id: int | str | None = None

    def __post_init__(self):
        check_name("FeatureConfig", self.name)
        if not isinstance(self.table, TableConfig):
            raise ValueError(
                f"FeatureConfig {self.name!r}: table={self.table!r}; it must be a TableConfig."
            )
        check_combiner(f"FeatureConfig {self.name!r}", self.combiner)
        check_padding_id(f"FeatureConfig {self.name!r}", self.padding_id)

    def to_dict(self) -> dict[str, Any]:
        """This config, its table included, as plain JSON data."""
        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureConfig:
        """The config that `to_dict` made `data` of."""
        return cls(**fields_of(data))


def check_combiner(owner: str, combiner: Any) -> None:
    """Raises ValueError, naming `owner`, if `combiner` isn't one."""
    if combiner not in COMBINERS:
        raise ValueError(f"{owner}: combiner={combiner!r}; it must be one of {one_of(COMBINERS)}.")


def check_padding_id(owner: str, padding_id: Any) -> None:
    """Raises ValueError, naming `owner`, if `padding_id` can't be an id."""
    if padding_id is None or isinstance(padding_id, str):
        return
    if not is_int(padding_id) or not -(2**63) <= padding_id < 2**63:
        raise ValueError(
            f"{owner}: padding_id={padding_id!r}; it must be an int64, a string (for string "
            "features) or None."
        )
