"""`FeatureConfig`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from merlin_embeddings.config.checks import ENDS, check_name, is_int, is_row_count, one_of
from merlin_embeddings.config.position_weights import PositionWeights
from merlin_embeddings.config.specs import fields_of, spec, to_plain
from merlin_embeddings.config.table import TableConfig

MISSING = ("error", "zeros")
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
            count in sum, divisor, maximum or length.
        max_length: only so many ids of a bag are looked up; None: all. Without combiner a padded
            `[B, L]` that is longer becomes `[B, max_length]` with its padding at the end.
        keep: which ids those are: the "first" or the "last", say of a history in the order of time.
        position_weights: weights learned by position in the bag: True, or `PositionWeights`. They
            need `max_length`, and a combiner that takes weights; weights of the call multiply them.
        missing: what a feature is that a batch hasn't (no such key in a dict, or None): an "error",
            or "zeros": a vector of zeros for each sample; without combiner no vector.

    Raises:
        ValueError: a field has a value that no feature can have.

    >>> item = TableConfig("item", vocabulary_size=1000, embedding_dim=16)
    >>> FeatureConfig("history", item, combiner="sum").combiner
    'sum'
    >>> clicks = FeatureConfig("clicks", item, max_length=20, keep="last", position_weights=True)
    >>> clicks.position_weights
    PositionWeights()
    """

    name: str
    table: TableConfig
    combiner: str | None = "mean"
    padding_id: int | str | None = None
    max_length: int | None = None
    keep: str = "first"
    position_weights: PositionWeights | bool | None = None
    missing: str = "error"

    def __post_init__(self):
        check_name("FeatureConfig", self.name)
        if not isinstance(self.table, TableConfig):
            self._refuse("table", "a TableConfig")
        if self.combiner not in COMBINERS:
            self._refuse("combiner", f"one of {one_of(COMBINERS)}")
        if not _is_padding(self.padding_id):
            self._refuse("padding_id", "an int64, a string (for string features) or None")
        if self.max_length is not None and not is_row_count(self.max_length):
            self._refuse("max_length", "a positive integer or None")
        if self.keep not in ENDS:
            self._refuse("keep", f"one of {one_of(ENDS)}")
        self._check_position_weights()
        if self.missing not in MISSING:
            self._refuse("missing", f"one of {one_of(MISSING)}")

    def to_dict(self) -> dict[str, Any]:
        """This config, its table included, as plain JSON data."""
        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureConfig:
        """The config that `to_dict` made `data` of."""
        return cls(**fields_of(data))

    def _check_position_weights(self) -> None:
        weights = self.position_weights
        if isinstance(weights, bool):
            weights = PositionWeights() if weights else None
        object.__setattr__(self, "position_weights", weights)
        if weights is None:
            return
        if not isinstance(weights, PositionWeights):
            self._refuse("position_weights", "True, a PositionWeights or None")
        if self.max_length is None:
            self._refuse("max_length", "given with position_weights: there are so many of them")
        if self.combiner in ("max", None):
            self._refuse(
                "combiner", "'sum', 'mean' or 'sqrtn' with position_weights, which weigh a pool"
            )

    def _refuse(self, field: str, wanted: str) -> None:
        raise ValueError(
            f"FeatureConfig {self.name!r}: {field}={getattr(self, field)!r}; it must be {wanted}."
        )


def _is_padding(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return True
    return is_int(value) and -(2**63) <= value < 2**63
