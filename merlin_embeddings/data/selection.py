"""Which columns are features and which are targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from merlin_embeddings.data.columns import Column, tagged
from merlin_embeddings.data.columns import targets as tagged_targets

_FEATURES = ("categorical", "continuous", "embedding")


@dataclasses.dataclass(frozen=True)
class Selection:
    """The columns of a batch.

    Attributes:
        features: names.
        targets: names.
        single: whether there is one target, which stands alone instead of in a dict.
    """

    features: tuple[str, ...]
    targets: tuple[str, ...]
    single: bool

    @property
    def names(self) -> tuple[str, ...]:
        """All columns; one may be both a feature and a target."""
        return tuple(dict.fromkeys(self.features + self.targets))

    def split(self, found: dict[str, Any]) -> Any:
        """What Keras takes: (features, targets), or features alone if there are no targets."""
        features = {name: found[name] for name in self.features}
        if not self.targets:
            return features
        if self.single:
            return features, found[self.targets[0]]
        return features, {name: found[name] for name in self.targets}


def select(
    names: Sequence[str], known: Sequence[Column], columns: Sequence[str] | None, targets: Any
) -> Selection:
    """Chooses features and targets.

    Args:
        names: the columns that the data have.
        known: what a schema says; may be empty.
        columns: the features; None: see `batches`.
        targets: a name, a tag, several of these, or None: by tag.

    Raises:
        ValueError: a target is neither a column nor a tag of one, or no features are left.
    """
    chosen = _targets(names, known, targets)
    features: Sequence[str]
    if columns is not None:
        if isinstance(columns, str):
            raise ValueError(f"batches: columns={columns!r}; it must be a list of names.")
        features = columns
    elif known:
        kinds = {column.name: column.kind for column in known}
        features = [name for name, kind in kinds.items() if kind in _FEATURES]
        features = features or [name for name, kind in kinds.items() if kind != "target"]
        features = [name for name in features if name not in chosen]
    else:
        features = [name for name in names if name not in chosen]
    if not features:
        raise ValueError(
            "batches: no column is left as a feature. Tag columns as categorical or continuous, or "
            "name them: columns=[...]."
        )
    single = len(chosen) == 1 and not isinstance(targets, (list, tuple))
    return Selection(tuple(dict.fromkeys(features)), tuple(chosen), single)


def _targets(names: Sequence[str], known: Sequence[Column], targets: Any) -> list[str]:
    if targets is None:
        return [column.name for column in tagged_targets(known)]
    found: list[str] = []
    for target in targets if isinstance(targets, (list, tuple)) else [targets]:
        if target in names or any(column.name == target for column in known):
            found.append(str(target))
            continue
        tag = [column.name for column in tagged(known, target)]
        if not tag:
            raise ValueError(
                f"batches: targets={target!r} is no column, nor a tag of one; there are columns "
                f"{list(names)}."
            )
        found += tag
    return list(dict.fromkeys(found))
