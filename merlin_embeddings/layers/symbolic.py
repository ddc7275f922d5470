"""What symbols tell of a call: mistakes in it, and the shape and dtype of its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorflow import keras

from merlin_embeddings.bags import (
    check_like,
    check_padding,
    check_parts,
    check_pool,
    check_shape,
    kind_of,
)
from merlin_embeddings.config import FeatureConfig
from merlin_embeddings.layers import flatten
from merlin_embeddings.layers.table_set import label
from merlin_embeddings.routing import check_kind, check_scores


def check(feature: FeatureConfig, ids: Any, inputs: Any, weights: Any, scores: Any = None) -> None:
    """Raises what the call would whatever the values.

    Integers can't be told from a dtype that Keras doesn't know: it says float32 then.

    Args:
        feature: which is looked up.
        ids: its table's id map.
        inputs: symbols, or a dict of them.
        weights: a symbol, or None.
        scores: a symbol, or None.

    Raises:
        TypeError: weights or scores of another kind, or padding that is no string where ids are.
        ValueError: weights where the combiner takes none, scores where the ids do, either of
            another static shape, or strings for ids that don't take any number.
    """
    name = label(feature)
    parts = inputs if isinstance(inputs, Mapping) else {"values": inputs}
    check_parts(parts, name)
    weights = parts.get("weights") if weights is None else weights
    check_pool(feature.combiner, weights, name)
    scores = parts.get("scores") if scores is None else scores
    if scores is not None:
        check_scores(ids, name)
    for what, given in (("weights", weights), ("scores", scores)):
        if given is not None and "row_splits" not in parts:
            check_like(parts["values"], given, name, what)
    if flatten.are_strings(parts):
        check_kind(ids, True, name)
        check_padding(feature.padding_id, strings=True, name=name)


def check_rank(feature: FeatureConfig, inputs: Any) -> None:
    """Raises ValueError unless symbols are `[B]`, `[B, L]`, or `[B, L, 1]`, of any kind."""
    name = label(feature)
    values = inputs["values"] if isinstance(inputs, Mapping) else inputs
    if feature.combiner is not None:
        check_shape(kind_of(values), values.shape, name)
    else:
        flatten.check_not_sparse(values, name)
        flatten.check_squeezable(values.shape, name)


def output_spec(
    inputs: Any,
    combiner: str | None,
    dim: int,
    dtype: str,
    max_length: int | None = None,
    squeeze: bool = False,
) -> keras.KerasTensor:
    """The symbolic output of `pooled` (with a combiner) or `single`.

    Args:
        inputs: a symbolic tensor, or a dict of them.
        combiner: None: no pooling.
        dim: D.
        dtype: of the output.
        max_length: bags are cut to so many ids, as `single_truncated` does.
        squeeze: whether `[B, L, 1]` is `[B, L]`, as `squeeze` makes it.
    """
    if isinstance(inputs, Mapping):
        return _output_spec_of_bags(inputs, combiner, dim, dtype, max_length)
    outer = tuple(inputs.shape)
    if squeeze and len(outer) == 3 and outer[2] == 1:
        outer = outer[:2]
    if combiner is not None and len(outer) > 1:
        outer = outer[:-1]
    ragged = getattr(inputs, "ragged", False) and len(outer) > 1
    outer = _cut(outer, max_length)
    return keras.KerasTensor((*outer, dim), dtype=dtype, ragged=ragged)


def _output_spec_of_bags(
    tensors: Mapping[str, Any], combiner: str | None, dim: int, dtype: str, max_length: int | None
) -> keras.KerasTensor:
    outer: tuple[int | None, ...]
    if "row_splits" in tensors:
        splits = tensors["row_splits"].shape[0]
        outer, ragged = (splits - 1 if splits else None, None), True
    else:
        outer, ragged = tuple(tensors["values"].shape), getattr(tensors["values"], "ragged", False)
    if "inverse" in tensors:
        outer = (tensors["inverse"].shape[0], *outer[1:])
    if combiner is not None:
        outer = outer[:1]
    ragged = ragged and len(outer) > 1
    return keras.KerasTensor((*_cut(outer, max_length), dim), dtype=dtype, ragged=ragged)


def _cut(outer: tuple[int | None, ...], max_length: int | None) -> tuple[int | None, ...]:
    """`[B, L]` with at most `max_length` for L, where both are known."""
    if max_length is None or len(outer) < 2 or outer[1] is None:
        return outer
    return (outer[0], min(outer[1], max_length), *outer[2:])
