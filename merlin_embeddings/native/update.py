"""Fused optimizer steps: from gradients, as optimizers get them, to rows updated in place.

The gradient of a lookup is the output of a stateless op. Where an optimizer gets it untouched, one
update op takes the *inputs* of that op instead and TensorFlow drops it; gradients that anything was
done to are grouped by row again. Either way duplicates are summed before the rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.native.library import ops
from merlin_embeddings.native.lookup import attributes_of, group, take


@dataclass(frozen=True)
class Source:
    """Table ``table`` of a values op: where an untouched gradient comes from."""

    op: tf.Operation
    table: int


@dataclass(frozen=True)
class TableUpdate:
    """A table, its slots in the rule's order, its map of changed rows, and its gradient.

    Args:
        variable: [R, D].
        slots: float32 [R, D] each, or [R] for row-wise ones.
        changed: uint8 [R]; 1 is written for every row updated.
        gradient: rows may repeat.
    """

    variable: tf.Variable
    slots: Sequence[tf.Variable]
    changed: tf.Variable
    gradient: tf.IndexedSlices


@dataclass(frozen=True)
class _Features:
    """Lookups and the gradients of their pooled vectors: a list entry each feature."""

    gradients: list
    lines: list
    row_splits: list
    weights: list  # None where a feature has none
    winners: list  # None where it isn't a maximum
    combiners: list
    hotness: list
    names: list

    def __add__(self, other: _Features) -> _Features:
        return _Features(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(_Features))
        )

    def inputs(self) -> dict:
        return dict(
            gradients=self.gradients,
            lines=self.lines,
            row_splits=self.row_splits,
            weights=[w for w in self.weights if w is not None],
            winners=[w for w in self.winners if w is not None],
        )


# There is nothing for AutoGraph here, and 2.12's takes zip(strict=True) for an error.
@tf.autograph.experimental.do_not_convert
def sources(slices: tf.IndexedSlices) -> list[Source] | None:
    """The lookups whose gradients ``slices`` is the plain concatenation of.

    None when anything was done to them: clipping, scaling, a crossing of replicas. In eager mode
    tensors don't know where they come from: always None.
    """
    if tf.executing_eagerly() or not compat.is_symbolic(slices.values):
        return None
    values, indices = [slices.values], [slices.indices]
    if slices.values.op.type == "ConcatV2" and slices.indices.op.type == "ConcatV2":
        values = list(slices.values.op.inputs)[:-1]
        indices = list(slices.indices.op.inputs)[:-1]
    found = []
    for value, index in zip(values, indices, strict=True):
        if value.op.type != "Merlin>Values":
            return None
        source = Source(value.op, value.value_index)
        if _groups_of(source.op)[0][source.table] is not index:
            return None
        found.append(source)
    return found


@tf.autograph.experimental.do_not_convert
def update(rule: str, hyper: tf.Tensor, updates: Sequence[TableUpdate]) -> list[tf.Operation]:
    """Applies ``rule`` to the rows that ``updates`` have gradients for, in place.

    All tables with untouched gradients go into one op, which takes over their lookups' groups; all
    others go into one more, which is given groups of its own.

    Args:
        rule: a name of ops/core/rules.h, such as ``"adagrad"``.
        hyper: float32 vector: learning rate, weight decay, gradient scale, coupled decay, largest
            norm of a row (0: any), then the rule's own (see there).
    """
    untouched: list[tuple[TableUpdate, Source]] = []
    regrouped: list[tuple[TableUpdate, _Features]] = []
    for one in updates:
        found = sources(one.gradient)
        if found is None:
            regrouped.append((one, _features_of_slices(one)))
        elif len(found) == 1:
            untouched.append((one, found[0]))
        else:
            features = [_features_of(source) for source in found]
            regrouped.append((one, sum(features[1:], start=features[0])))
    steps = [_update_untouched(rule, hyper, untouched)] if untouched else []
    if regrouped:
        steps.append(_update_regrouped(rule, hyper, regrouped))
    return steps


@tf.autograph.experimental.do_not_convert
def coalesce(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """The same gradient with distinct, ascending rows; a lookup's own comes back as it is."""
    found = sources(slices)
    if found is not None and len(found) == 1:
        return slices
    rows = slices.dense_shape[0] if slices.dense_shape is not None else None
    static = tf.get_static_value(rows) if rows is not None else None
    features = _of_slices(slices, "gradient")
    attributes = _attributes(features, [0], [int(static) if static is not None else 1 << 32])
    inputs = features.inputs()
    groups = group(inputs["lines"], inputs["row_splits"], inputs["weights"], attributes)
    values = ops.merlin_values(
        **inputs,
        rows=groups.rows,
        offsets=groups.offsets,
        sources=groups.sources,
        **attributes,
    )
    return tf.IndexedSlices(
        tf.cast(values[0], slices.values.dtype), groups.rows[0], slices.dense_shape
    )


def _attributes(features: _Features, table_of: list[int], table_rows: list[int]) -> dict:
    return dict(
        table_of=table_of,
        combiners=features.combiners,
        weighted=[w is not None for w in features.weights],
        hotness=features.hotness,
        table_rows=table_rows,
        names=features.names,
    )


_VALUES_INPUTS = (
    "gradients",
    "lines",
    "row_splits",
    "weights",
    "winners",
    "rows",
    "offsets",
    "sources",
)


def _inputs_of(op: tf.Operation) -> list[list[tf.Tensor]]:
    """What goes into a values op, as `_VALUES_INPUTS` names it."""
    features, tables = op.get_attr("F"), op.get_attr("T")
    return take(
        op.inputs,
        *[features] * 3,
        op.get_attr("W"),
        op.get_attr("X"),
        *[tables] * 3,
    )


def _groups_of(op: tf.Operation) -> list[list[tf.Tensor]]:
    return _inputs_of(op)[5:]


def _features_of(source: Source) -> _Features:
    """The features of one table of a values op."""
    gradients, lines, row_splits, weights, winners = _inputs_of(source.op)[:5]
    attributes = attributes_of(source.op)
    next_weight, next_winner = iter(weights), iter(winners)
    weights = [next(next_weight) if has else None for has in attributes["weighted"]]
    winners = [next(next_winner) if c == "max" else None for c in attributes["combiners"]]
    columns = (
        gradients,
        lines,
        row_splits,
        weights,
        winners,
        attributes["combiners"],
        attributes["hotness"],
        attributes["names"],
    )
    own = [f for f, table in enumerate(attributes["table_of"]) if table == source.table]
    return _Features(*([column[f] for f in own] for column in columns))


def _of_slices(slices: tf.IndexedSlices, name: str) -> _Features:
    """Any gradient, seen as that of lookups of one row each."""
    return _Features(
        gradients=[tf.cast(slices.values, tf.float32)],
        lines=[tf.cast(slices.indices, tf.int64)],
        row_splits=[tf.zeros([0], tf.int64)],
        weights=[None],
        winners=[None],
        combiners=["sum"],
        hotness=[1],
        names=[name],
    )


def _features_of_slices(one: TableUpdate) -> _Features:
    return _of_slices(one.gradient, f"gradient of '{one.variable.name}'")


def _variables(updates: Sequence[TableUpdate]) -> dict:
    return dict(
        tables=[one.variable.handle for one in updates],
        slots=[slot.handle for one in updates for slot in one.slots],
        changed=[one.changed.handle for one in updates],
    )


def _update_untouched(
    rule: str, hyper: tf.Tensor, parts: list[tuple[TableUpdate, Source]]
) -> tf.Operation:
    """One op for the tables of several lookups: a layer a table costs no op a table."""
    lookups = {source.op.name: source.op for _, source in parts}
    inputs: list[list[tf.Tensor]] = [[] for _ in _VALUES_INPUTS]
    attributes: dict[str, list] = {}
    first: dict[str, int] = {}  # of a lookup's tables among all
    for name, op in lookups.items():
        for all_of_it, its in zip(inputs, _inputs_of(op), strict=True):
            all_of_it += its
        own = attributes_of(op)
        first[name] = len(attributes.get("table_rows", []))
        own["table_of"] = [first[name] + table for table in own["table_of"]]
        for key, values in own.items():
            attributes.setdefault(key, []).extend(values)
    return ops.merlin_update(
        **_variables([one for one, _ in parts]),
        hyper=hyper,
        **dict(zip(_VALUES_INPUTS, inputs, strict=True)),
        rule=rule,
        selected=[first[source.op.name] + source.table for _, source in parts],
        **attributes,
    )


def _update_regrouped(
    rule: str, hyper: tf.Tensor, parts: list[tuple[TableUpdate, _Features]]
) -> tf.Operation:
    updates = [one for one, _ in parts]
    features = sum((f for _, f in parts[1:]), start=parts[0][1])
    table_of = [table for table, (_, own) in enumerate(parts) for _ in own.lines]
    attributes = _attributes(features, table_of, [int(one.variable.shape[0]) for one in updates])
    inputs = features.inputs()
    groups = group(inputs["lines"], inputs["row_splits"], inputs["weights"], attributes)
    return ops.merlin_update(
        **_variables(updates),
        hyper=hyper,
        **inputs,
        rows=groups.rows,
        offsets=groups.offsets,
        sources=groups.sources,
        rule=rule,
        selected=list(range(len(updates))),
        **attributes,
    )
