"""Lookup and pooling of many features in many tables by one op, and its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from merlin_embeddings.compat import mark_accessed
from merlin_embeddings.native.absent import is_absent
from merlin_embeddings.native.attached import Attached
from merlin_embeddings.native.claims import require_claimed
from merlin_embeddings.native.library import ops


@dataclass(frozen=True)
class Pooling:
    """One feature's part of a lookup.

    Args:
        table: index of its table among those of the call.
        lines: [N] int64, each a row of the table or -1 for "no vector".
        row_splits: [B + 1] int64; None where ``hotness`` is given or nothing is pooled.
        weights: [N] float32, or None.
        combiner: ``"sum"``, ``"mean"``, ``"sqrtn"``, ``"max"``, or None for a vector each lookup.
        hotness: the number of lookups of every bag where it is known and fixed, else None.
        name: how errors speak of it, such as ``"table 'item', feature 'history'"``.
        strict: refuse line -1 too: the lines are ids that nobody has checked yet.
    """

    table: int
    lines: tf.Tensor
    row_splits: tf.Tensor | None
    weights: tf.Tensor | None
    combiner: str | None
    hotness: int | None
    name: str
    strict: bool = False


def lookup(
    tables: Sequence[tf.Variable],
    poolings: Sequence[Pooling],
    guards: Sequence[Attached | None] | None = None,
) -> list[tf.Tensor]:
    """Pools the bags of every feature: float32 [B, D] each, [N, D] where the combiner is None.

    Args:
        tables: resource variables [R, D] of one dtype: float32, bfloat16 or float16.
        poolings: one a feature; several may share a table.
        guards: of each table whose rows move, what knows whether an optimizer serves it that may:
            without one, gradients of its vectors are InvalidArgumentErrors.

    The gradient of each table is one ``tf.IndexedSlices`` of distinct, ascending rows; that of
    weights is dense. Sums have one fixed order. A line outside its table, wrong row_splits or a
    weight that is not finite raise InvalidArgumentError, which names the feature.
    """
    nothing = tf.zeros([0], tf.int64)
    guards = [None] * len(tables) if guards is None else guards
    for table in tables:
        mark_accessed(table)
    outputs = ops.merlin_lookup(
        tables=[table.handle for table in tables],
        lines=[p.lines for p in poolings],
        row_splits=[nothing if p.row_splits is None else p.row_splits for p in poolings],
        weights=[p.weights for p in poolings if p.weights is not None],
        X=sum(p.combiner == "max" for p in poolings),
        dims=[int(table.shape[1]) for table in tables],
        strict=[p.strict for p in poolings],
        guards=["" if guard is None else guard.name for guard in guards],
        **_attributes([int(table.shape[0]) for table in tables], poolings),
    )
    return list(outputs.pooled)


def _attributes(table_rows: Sequence[int], poolings: Sequence[Pooling]) -> dict:
    return dict(
        table_of=[p.table for p in poolings],
        combiners=[p.combiner or "none" for p in poolings],
        weighted=[p.weights is not None for p in poolings],
        hotness=[p.hotness or 0 for p in poolings],
        table_rows=list(table_rows),
        names=[p.name for p in poolings],
    )


_ATTRIBUTES = ("table_of", "combiners", "weighted", "hotness", "table_rows", "names")


def attributes_of(op: tf.Operation) -> dict:
    """The attributes that lookup, group, values and update ops share."""
    attributes = {name: list(op.get_attr(name)) for name in _ATTRIBUTES}
    for name in ("combiners", "names"):
        attributes[name] = [tf.compat.as_str(text) for text in attributes[name]]
    return attributes


def take(inputs: Sequence[tf.Tensor], *counts: int) -> list[list[tf.Tensor]]:
    """Cuts an op's flat inputs into lists of the given lengths."""
    inputs, lists = list(inputs), []
    for count in counts:
        lists.append(inputs[:count])
        inputs = inputs[count:]
    return lists


def group(
    lines: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor],
    weights: Sequence[tf.Tensor],
    attributes: dict,
) -> Any:
    """Distinct rows, offsets and sources of each table (see ``Groups`` in ops/core/types.h)."""
    return ops.merlin_group(
        lines=lines,
        row_splits=row_splits,
        weights=weights,
        T=len(attributes["table_rows"]),
        **attributes,
    )


def _dense(gradient: tf.Tensor | tf.IndexedSlices, like: tf.Tensor) -> tf.Tensor:
    """A pooled vector's gradient [B, D] from what TensorFlow hands over."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.math.unsorted_segment_sum(
            gradient.values, gradient.indices, tf.shape(like, gradient.indices.dtype)[0]
        )
    return gradient


def _only(features: list[int], attributes: dict, handles: list) -> tuple[dict, list, list[int]]:
    """Attributes and handles of some features and the tables they use, and which those are."""
    tables = sorted({attributes["table_of"][f] for f in features})
    chosen = {
        name: [values[f] for f in features]
        for name, values in attributes.items()
        if name != "table_rows"
    }
    chosen["table_of"] = [tables.index(table) for table in chosen["table_of"]]
    chosen["table_rows"] = [attributes["table_rows"][table] for table in tables]
    return chosen, [handles[table] for table in tables], tables


def _by_feature(values: Sequence[tf.Tensor], present: Sequence[bool]) -> list[tf.Tensor | None]:
    """Spreads a list that only some features have an entry in."""
    left = iter(values)
    return [next(left) if has else None for has in present]


@tf.RegisterGradient("Merlin>Lookup")
@tf.autograph.experimental.do_not_convert
def _lookup_gradient(op: tf.Operation, *output_gradients: Any) -> list:
    features, tables = op.get_attr("F"), op.get_attr("T")
    table_gradients: list = [None] * tables
    weight_gradients: list = [None] * features
    used = [f for f in range(features) if not is_absent(output_gradients[f])]
    if used:
        _fill_gradients(op, output_gradients, used, table_gradients, weight_gradients)
    weighted = [g for g, has in zip(weight_gradients, op.get_attr("weighted"), strict=True) if has]
    return [*table_gradients, *[None] * (2 * features), *weighted]


def _fill_gradients(
    op: tf.Operation,
    output_gradients: Sequence[Any],
    used: list[int],
    table_gradients: list,
    weight_gradients: list,
) -> None:
    """Writes the gradients that the features in ``used`` have into the lists of all."""
    features = op.get_attr("F")
    handles, lines, row_splits, weights = take(
        op.inputs, op.get_attr("T"), features, features, op.get_attr("W")
    )
    pooled, winners = take(op.outputs, features, op.get_attr("X"))
    attributes = attributes_of(op)
    weights = _by_feature(weights, attributes["weighted"])
    winners = _by_feature(winners, [c == "max" for c in attributes["combiners"]])
    attributes, handles, tables = _only(used, attributes, handles)
    inputs = dict(
        lines=[lines[f] for f in used],
        row_splits=[row_splits[f] for f in used],
        weights=[weights[f] for f in used if weights[f] is not None],
    )
    guards = [tf.compat.as_str(guard) for guard in op.get_attr("guards")]
    gradients = [_dense(output_gradients[f], pooled[f]) for f in used]
    if any(guards):  # an older version's export has none
        guards_of_used = [guards[table] for table in (op.get_attr("table_of")[f] for f in used)]
        gradients = [
            require_claimed(gradient, guard, name) if guard else gradient
            for gradient, guard, name in zip(
                gradients, guards_of_used, attributes["names"], strict=True
            )
        ]
    groups = group(**inputs, attributes=attributes)
    values = ops.merlin_values(
        gradients=gradients,
        **inputs,
        winners=[winners[f] for f in used if winners[f] is not None],
        rows=groups.rows,
        offsets=groups.offsets,
        sources=groups.sources,
        **attributes,
    )
    dims = op.get_attr("dims")
    for at, table in enumerate(tables):
        shape = [attributes["table_rows"][at], dims[table]]
        # As TensorFlow's own gradients have it, so that both can meet behind a tf.cond.
        small = max(shape) <= tf.int32.max
        table_gradients[table] = tf.IndexedSlices(
            values[at], groups.rows[at], tf.constant(shape, tf.int32 if small else tf.int64)
        )
    if inputs["weights"]:
        found = ops.merlin_weight_gradient(
            tables=handles, gradients=gradients, **inputs, **attributes
        )
        weighted = [f for f in used if weights[f] is not None]
        for feature, gradient in zip(weighted, found, strict=True):
            weight_gradients[feature] = gradient


def _no_second_order(op: tf.Operation, *_: Any) -> list:
    raise LookupError(
        f"{op.get_attr('names')}: embedding lookups have first-order gradients only; put "
        "tf.stop_gradient around the first gradient, or differentiate with respect to the pooled "
        "vectors"
    )


tf.RegisterGradient("Merlin>Values")(_no_second_order)
tf.RegisterGradient("Merlin>WeightGradient")(_no_second_order)
tf.no_gradient("Merlin>Group")
tf.no_gradient("Merlin>CheckRange")
tf.no_gradient("Merlin>Modulo")
tf.no_gradient("Merlin>RowSplits")
tf.no_gradient("Merlin>HashIds")
tf.no_gradient("Merlin>HashRows")
