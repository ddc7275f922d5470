"""Nested structures of features, and inputs of the same structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from merlin_embeddings.config import FeatureConfig


def flatten(features: Any) -> list[FeatureConfig]:
    """The features of a structure in order.

    Raises:
        ValueError: a leaf isn't a FeatureConfig, there is none, or a dict has keys that Keras can't
            save: others than strings, or both "class_name" and "config".
    """
    found = list(_leaves(features))
    if not found:
        raise ValueError("Embeddings: features has no FeatureConfig.")
    return found


def pack(features: Any, values: Iterator[Any]) -> Any:
    """`values` in the structure of `features`."""
    if isinstance(features, FeatureConfig):
        return next(values)
    if isinstance(features, Mapping):
        return {key: pack(item, values) for key, item in features.items()}
    items = [pack(item, values) for item in features]
    return tuple(items) if isinstance(features, tuple) else items


def match(features: Any, inputs: Any) -> list[Any]:
    """The input of each feature, in the order of `flatten`.

    Inputs have the structure of the features. A feature `x` in a dict may also be given as Merlin's
    pair `x__values` `[N]`, `x__offsets` `[B + 1]`. Other keys of a dict are left alone. None stands
    for features that are missing and may be.

    Raises:
        ValueError: inputs have another structure, or a feature that may not be missing is.
    """
    found = list(_match(features, inputs, "inputs", _pair_or_none))
    for feature, item in found:
        if item is None and feature.missing == "error":
            raise ValueError(
                f"Embeddings: feature {feature.name!r} is None; give ids, or its config "
                "missing='zeros'."
            )
    return [item for _, item in found]


def match_weights(features: Any, weights: Any, what: str = "weights") -> list[Any]:
    """The weights of each feature, in the order of `flatten`; None where there are none.

    Args:
        features: a structure of them.
        weights: of the same structure, or None.
        what: what messages call them: "weights" or "scores".

    Raises:
        ValueError: weights have another structure, or a key that is no feature.
    """
    return [item for _, item in _match(features, weights, what, lambda *_: None)]


def _leaves(features: Any) -> Iterator[FeatureConfig]:
    if isinstance(features, FeatureConfig):
        yield features
    elif isinstance(features, Mapping):
        _check_keys(features)
        for item in features.values():
            yield from _leaves(item)
    elif isinstance(features, (list, tuple)):
        for item in features:
            yield from _leaves(item)
    else:
        raise ValueError(
            f"Embeddings: features are FeatureConfigs in dicts, lists or tuples; got {features!r}."
        )


def _check_keys(features: Mapping) -> None:
    for key in features:
        if not isinstance(key, str):
            raise ValueError(
                f"Embeddings: features has the key {key!r}; Keras saves keys as strings, so that "
                "the inputs of a loaded model would have other keys. Use strings."
            )
    if {"class_name", "config"} <= set(features):
        raise ValueError(
            "Embeddings: features has both keys 'class_name' and 'config'; Keras takes such a dict "
            "for a saved object. Rename one."
        )


def _match(
    features: Any, items: Any, what: str, absent: Callable[[FeatureConfig, str, Mapping], Any]
) -> Iterator[tuple[FeatureConfig, Any]]:
    """Pairs of feature and item; `absent(features, key, items)` where a dict has no such key."""
    if isinstance(features, FeatureConfig):
        yield features, items
    elif items is None:
        yield from ((feature, None) for feature in _leaves(features))
    elif isinstance(features, Mapping):
        if not isinstance(items, Mapping):
            raise ValueError(
                f"Embeddings: {what} must be a dict with the features {list(features)}; got a "
                f"{type(items).__name__}."
            )
        if what != "inputs" and set(items) - set(features):
            raise ValueError(
                f"Embeddings: {what} for {sorted(set(items) - set(features))}, which are no "
                f"features; features are {list(features)}."
            )
        for key, feature in features.items():
            item = items[key] if key in items else absent(feature, key, items)
            yield from _match(feature, item, what, absent)
    else:
        if not isinstance(items, (list, tuple)) or len(items) != len(features):
            size = f" of {len(items)}" if isinstance(items, (list, tuple)) else ""
            raise ValueError(
                f"Embeddings: {what} must be a {type(features).__name__} of {len(features)}, one "
                f"for each of the features; got a {type(items).__name__}{size}."
            )
        for feature, item in zip(features, items, strict=True):
            yield from _match(feature, item, what, absent)


def _pair_or_none(feature: Any, key: str, inputs: Mapping) -> Any:
    values, offsets = f"{key}__values", f"{key}__offsets"
    if isinstance(feature, FeatureConfig) and values in inputs and offsets in inputs:
        return {"values": inputs[values], "row_splits": inputs[offsets]}
    if values not in inputs and all(leaf.missing == "zeros" for leaf in _leaves(feature)):
        return None
    has = f"only {values!r}" if values in inputs else f"{sorted(map(str, inputs))}"
    raise ValueError(
        f"Embeddings: feature {key!r} isn't in the inputs, which have {has}. Give {key!r}, or the "
        f"pair {values!r} and {offsets!r}; a batch may lack features whose config says "
        "missing='zeros'."
    )
