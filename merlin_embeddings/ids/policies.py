"""Which id loses its row when another needs one: each policy is a score, and the lowest goes.

Time is counted in steps: training calls of the map. A score has 32 bits.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from merlin_embeddings import config


@dataclasses.dataclass(frozen=True)
class Policy:
    """What the policies have in common.

    Attributes:
        kind: what the native table calls it.
        by_age: whether scores tell when an id was last seen, so that `restrict(max_age=)` can ask.
        by_count: whether scores tell how often, so that `restrict(min_count=)` can ask.
    """

    kind: ClassVar[str]
    by_age: ClassVar[bool] = False
    by_count: ClassVar[bool] = False


@config.spec
@dataclasses.dataclass(frozen=True)
class LRU(Policy):
    """The id that hasn't been seen for the longest time goes.

    >>> LRU()
    LRU()
    """

    kind: ClassVar[str] = "lru"
    by_age: ClassVar[bool] = True


@config.spec
@dataclasses.dataclass(frozen=True)
class LFU(Policy):
    """The id that has been seen least often goes.

    Args:
        half_life: steps after which a sighting counts half; None: it counts for ever, up to
            2**32 - 1. Decay is computed when an id is seen, so no step ever sweeps the table: the
            score is then the logarithm of the decayed count, to 1/4096 of an octave, rounded at
            random so that it is right on average.

    Raises:
        ValueError: `half_life` isn't a positive integer below 2**31.

    >>> LFU(half_life=1000)
    LFU(half_life=1000)
    """

    half_life: int | None = None

    kind: ClassVar[str] = "lfu"
    by_count: ClassVar[bool] = True

    def __post_init__(self):
        if self.half_life is None:
            return
        if not config.is_row_count(self.half_life) or self.half_life >= 2**31:
            raise ValueError(
                f"ids.LFU: half_life={self.half_life!r}; it must be a positive number of training "
                "steps, below 2**31, or None for counts that don't decay."
            )


@config.spec
@dataclasses.dataclass(frozen=True)
class EpochLRU(Policy):
    """Ids of older epochs go first; within an epoch, those not seen for the longest time.

    The policy of this name of HierarchicalKV. `set_epoch` of the map tells the epoch.

    >>> EpochLRU()
    EpochLRU()
    """

    kind: ClassVar[str] = "epoch_lru"


@config.spec
@dataclasses.dataclass(frozen=True)
class EpochLFU(Policy):
    """Ids of older epochs go first; within an epoch, those seen least often.

    The policy of this name of HierarchicalKV. `set_epoch` of the map tells the epoch.

    >>> EpochLFU()
    EpochLFU()
    """

    kind: ClassVar[str] = "epoch_lfu"


@config.spec
@dataclasses.dataclass(frozen=True)
class TTL(Policy):
    """Ids go that haven't been seen for more than `steps` steps, and no others.

    Where none has expired, a new id isn't admitted.

    Args:
        steps: how long an id stays.

    Raises:
        ValueError: `steps` isn't a positive integer below 2**31.

    >>> TTL(5000)
    TTL(steps=5000)
    """

    steps: int

    kind: ClassVar[str] = "ttl"
    by_age: ClassVar[bool] = True

    def __post_init__(self):
        if not config.is_row_count(self.steps) or self.steps >= 2**31:
            raise ValueError(
                f"ids.TTL: steps={self.steps!r}; it must be a positive number of training steps, "
                "below 2**31."
            )


@config.spec
@dataclasses.dataclass(frozen=True)
class Custom(Policy):
    """The score comes with the ids, in `[0, 2**32)`; the id with the lowest goes.

    An id that is looked up again has the score that came last; within one call, the highest.

    >>> Custom()
    Custom()
    """

    kind: ClassVar[str] = "custom"


_BY_NAME: dict[str, type[Policy]] = {
    policy.kind: policy for policy in (LRU, LFU, EpochLRU, EpochLFU, Custom)
}


def get(policy: Any) -> Policy:
    """The policy that `policy` means.

    Args:
        policy: one of this module, or the name of one that needs no arguments: "lru", "lfu",
            "epoch_lru", "epoch_lfu", "custom".

    Raises:
        ValueError: it is none.

    >>> get("lfu")
    LFU()
    """
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str) and policy in _BY_NAME:
        return _BY_NAME[policy]()
    if policy == "ttl":
        raise ValueError("policy='ttl' doesn't say how long ids stay; give ids.TTL(steps).")
    raise ValueError(
        f"policy={policy!r}; it must be {config.one_of(tuple(_BY_NAME))}, or one of ids.LRU, "
        "ids.LFU, ids.EpochLRU, ids.EpochLFU, ids.TTL, ids.Custom."
    )
