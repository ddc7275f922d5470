"""Rows of their own for the ids that come often."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from merlin_embeddings import config
from merlin_embeddings.ids.counting import as_counts, by_frequency
from merlin_embeddings.ids.hash import check_salt
from merlin_embeddings.ids.known import KnownIds, as_ids, check_distinct, is_text, to_keys
from merlin_embeddings.ids.known_map import KnownIdsMap
from merlin_embeddings.ids.vocabulary import check_oov_rows


@config.spec
@dataclasses.dataclass(frozen=True)
class FrequencyCap:
    """Ids that come often have rows of their own; all others share `oov_rows`.

    Rare ids are seen too seldom for a vector to be learned, and are most of a table: a cap on them
    costs little and saves most of the memory (as `min_count` of word vectors does, Mikolov et al.,
    "Distributed Representations of Words and Phrases and their Compositionality", 2013). Rows go
    by frequency, the most frequent id first.

    As with `Vocabulary` the ids are among a layer's weights, not in its config.

    Args:
        ids: N distinct integers or strings, or a dict of counts by id.
        counts: `[N]`, how often each was seen; `ids.count` counts data, `data.frequencies` has what
            NVTabular's Categorify counted.
        min_count: ids seen so often have rows of their own.
        top: the so many most frequent ids have; with `min_count` those that meet both.
        oov_rows: all other ids share so many rows by hash: row `n + ids.Hash(oov_rows, salt)` of
            the id, behind the n of the others; 0: they have no vector.
        salt: of the hash.

    Raises:
        TypeError: ids or counts of another kind.
        ValueError: neither `min_count` nor `top`, no id meets them, or a field that can't be.

    >>> FrequencyCap([7, 3, 5, 9], [10, 400, 1, 25], min_count=10).ids.keys.tolist()
    [3, 9, 7]
    >>> FrequencyCap({"Rome": 9, "Oslo": 3, "Bonn": 1}, top=2)
    FrequencyCap(ids=KnownIds(2 strings), top=2)
    """

    ids: Any
    counts: Any = None
    min_count: int | None = None
    top: int | None = None
    oov_rows: int = 1
    salt: int = 0

    def __post_init__(self):
        check_oov_rows("ids.FrequencyCap", self.oov_rows)
        check_salt("ids.FrequencyCap", self.salt)
        _keep(self, ("min_count", "top"))

    def rows_of(self, vocabulary_size: int | None) -> int:
        """How many ids have rows of their own, and `oov_rows`; whatever `vocabulary_size`."""
        del vocabulary_size
        return self.ids.size + self.oov_rows

    def build(self, vocabulary_size: int | None = None) -> KnownIdsMap:
        """The map; its index is made by `make`."""
        del vocabulary_size
        return KnownIdsMap(self.ids, self.oov_rows, "zero", self.salt)


@config.spec
@dataclasses.dataclass(frozen=True)
class FrequencyHash:
    """Frequent ids have rows of their own, the others share hashed rows.

    The frequent ids, most of the traffic, pay nothing for the hash of the many others (Zhang et
    al., "Model Size Reduction Using Frequency Based Double Hashing for Recommender Systems", RecSys
    2020, with one hash for the others). Rows go by frequency, the most frequent id first; the
    hashed rows come behind them.

    As with `Vocabulary` the ids are among a layer's weights, not in its config.

    Args:
        ids: N distinct integers or strings, or a dict of counts by id.
        counts: `[N]`, how often each was seen; `ids.count` counts data, `data.frequencies` has what
            NVTabular's Categorify counted.
        hashed_rows: all other ids share so many rows: row `n + ids.Hash(hashed_rows, salt)` of the
            id, behind the n of the frequent ones.
        min_count: ids seen so often are frequent.
        top: the so many most frequent ids are.
        share: as many ids are as have this share of all that was counted, in (0, 1]. Of several
            conditions all must be met.
        salt: of the hash.

    Raises:
        TypeError: ids or counts of another kind.
        ValueError: no condition, no id meets it, or a field that can't be.

    >>> spec = FrequencyHash([7, 3, 5, 9], [10, 400, 1, 25], hashed_rows=2, share=0.95)
    >>> spec.ids.keys.tolist(), spec.rows_of(None)
    ([3, 9], 4)
    """

    ids: Any
    counts: Any = None
    hashed_rows: int = 0
    min_count: int | None = None
    top: int | None = None
    share: float | None = None
    salt: int = 0

    def __post_init__(self):
        if not config.is_row_count(self.hashed_rows):
            raise ValueError(
                f"ids.FrequencyHash: hashed_rows={self.hashed_rows!r}; it must be a positive "
                "integer: rows that all ids share which aren't frequent."
            )
        check_salt("ids.FrequencyHash", self.salt)
        _keep(self, ("min_count", "top", "share"))

    def rows_of(self, vocabulary_size: int | None) -> int:
        """How many ids are frequent, and `hashed_rows`; whatever `vocabulary_size`."""
        del vocabulary_size
        return self.ids.size + self.hashed_rows

    def build(self, vocabulary_size: int | None = None) -> KnownIdsMap:
        """The map; its index is made by `make`."""
        del vocabulary_size
        return KnownIdsMap(self.ids, self.hashed_rows, "zero", self.salt)


def _keep(spec: Any, conditions: tuple[str, ...]) -> None:
    """Makes KnownIds of those ids of a spec that meet its conditions; the counts have served."""
    name = f"ids.{type(spec).__name__}"
    given = {condition: getattr(spec, condition) for condition in conditions}
    _check_conditions(name, given)
    if isinstance(spec.ids, KnownIds) and spec.counts is None:
        return  # made from plain data
    ids, counts = _counted(spec.ids, spec.counts, name)
    kept = _kept(ids, counts, **given)
    if not len(kept):
        asked = ", ".join(f"{key}={value}" for key, value in given.items() if value is not None)
        raise ValueError(f"{name}: none of {len(ids)} ids meets {asked}.")
    object.__setattr__(spec, "ids", KnownIds(to_keys(kept), strings=is_text(kept)))
    object.__setattr__(spec, "counts", None)


def _check_conditions(name: str, given: Mapping[str, Any]) -> None:
    if all(value is None for value in given.values()):
        raise ValueError(f"{name}: say which ids are frequent by {' or '.join(given)}.")
    for key in ("min_count", "top"):
        if given[key] is not None and not config.is_row_count(given[key]):
            raise ValueError(f"{name}: {key}={given[key]!r}; it must be a positive integer.")
    share = given.get("share")
    if share is not None and (isinstance(share, bool) or not 0 < share <= 1):
        raise ValueError(f"{name}: share={share!r}; it must be a number in (0, 1].")


def _counted(ids: Any, counts: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Distinct ids and their counts, the most frequent first."""
    if counts is None:
        if not isinstance(ids, Mapping):
            raise ValueError(
                f"{name}: counts are missing; give one for each id, as ids.count(data) and "
                "data.frequencies(workflow, column) do, or ids as a dict of counts."
            )
        ids, counts = list(ids), list(ids.values())
    array = as_ids(ids, name)
    counts = as_counts(counts, len(array), name)
    check_distinct(to_keys(array), array, name)
    return by_frequency(array, counts)


def _kept(
    ids: np.ndarray,
    counts: np.ndarray,
    min_count: int | None = None,
    top: int | None = None,
    share: float | None = None,
) -> np.ndarray:
    """Those that meet all conditions, of ids that come by frequency."""
    size = len(ids)
    if min_count is not None:
        size = int(np.sum(counts >= min_count))
    if top is not None:
        size = min(size, top)
    if share is not None:
        # The fewest whose counts add up to the share; exact in integers as far as floats are.
        reached = np.cumsum(counts) >= share * counts.sum()
        size = min(size, int(np.argmax(reached)) + 1 if len(ids) else 0)
    return ids[:size]
