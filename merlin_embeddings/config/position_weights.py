"""`PositionWeights`."""

from __future__ import annotations

import dataclasses
from typing import Any

from merlin_embeddings.config.checks import ENDS, one_of
from merlin_embeddings.config.specs import spec


@spec
@dataclasses.dataclass(frozen=True)
class PositionWeights:
    """Weights `[max_length]` of a feature, learned by position in the bag.

    The vector of a bag's i-th id is multiplied by the i-th weight before it is pooled, as with
    TorchRec's `PositionWeightedModule`. Padding has no position: it isn't counted.

    Args:
        initializer: a Keras initializer, or the name of one.
        regularizer: a Keras regularizer of all weights, or None.
        constraint: a Keras constraint of all weights, such as "non_neg", or None.
        trainable: False freezes them.
        count_from: "first": position 0 is a bag's first id; "last": its last id, say the latest
            event of a history in the order of time.

    Raises:
        ValueError: a field has a value that it can't have.

    >>> PositionWeights(count_from="last")
    PositionWeights(count_from='last')
    """

    initializer: Any = "ones"
    regularizer: Any = None
    constraint: Any = None
    trainable: bool = True
    count_from: str = "first"

    def __post_init__(self):
        if not isinstance(self.trainable, bool):
            raise ValueError(f"PositionWeights: trainable={self.trainable!r}; it is True or False.")
        if self.count_from not in ENDS:
            raise ValueError(
                f"PositionWeights: count_from={self.count_from!r}; it must be one of "
                f"{one_of(ENDS)}."
            )
