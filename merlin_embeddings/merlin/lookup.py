"""The lookup of all features of a table, in one native call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from merlin_embeddings import layers, tables
from merlin_embeddings.bags import Bags
from merlin_embeddings.config import FeatureConfig
from merlin_embeddings.ids import Custom
from merlin_embeddings.layers import flatten
from merlin_embeddings.merlin.inputs import batch_size, squeeze


class Batch(NamedTuple):
    """One feature's ids.

    Attributes:
        ids: `[B]`, `[B, L]`, ragged `[B, None]` or sparse `[B, L]`; without combiner any rank.
        label: what messages call them.
        scores: of the kind and shape of the ids, or None.
    """

    ids: Any
    label: str
    scores: Any = None


@tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
def batch_of(ids: Any, scores: Any, label: str) -> Batch:
    """A batch of what merlin-models hands to a table, or a caller.

    Args:
        ids: integers or strings, or floats that are cast; see `inputs.squeeze`.
        scores: integers of their kind and shape, or None.
        label: what messages call them.
    """
    if scores is not None:
        if not isinstance(scores, (tf.RaggedTensor, tf.SparseTensor)):
            scores = tf.convert_to_tensor(scores)
        scores = squeeze(scores, f"{label}, scores")
    return Batch(squeeze(flatten.as_integers(ids), label), label, scores)


@tf.autograph.experimental.do_not_convert
def look_up(
    table: layers.Embedding, batches: Mapping[str, Batch], combiner: str | None, training: bool
) -> dict[str, Any]:
    """Vectors of features that share a table; losses of regularizers are added to the table's.

    Args:
        table: a layer without combiner.
        batches: by feature.
        combiner: "sum", "mean", "sqrtn", "max" or None.
        training: whether the step trains.

    Raises:
        ValueError: no scores where the table's ids go by them, or scores where they don't.

    Returns:
        By feature `[B, D]`, or without combiner the shape of the ids and D, ragged for ragged ids;
        float32.
    """
    if training:
        _check_scores(table, batches.values())
    flats, features, bags = _parts(table, batches, combiner)
    regularizer = table.activity_regularizer
    if regularizer is None:
        vectors = table.look_up(features, bags, training)
    else:
        vectors, singles = _pooled_and_single(table, features, bags, training)
        for batch, its_singles in zip(batches.values(), singles, strict=True):
            loss = regularizer(its_singles)
            size = tf.cast(batch_size(batch.ids), loss.dtype)
            table.add_loss(tf.math.divide_no_nan(loss, size))
    return {
        name: flat.restore(found) for name, flat, found in zip(batches, flats, vectors, strict=True)
    }


def _pooled_and_single(
    table: layers.Embedding,
    features: Sequence[FeatureConfig],
    bags: Sequence[Bags],
    training: bool,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Vectors of F features, and F times those of their single ids.

    Ids are mapped to rows once, since a map that remembers them counts, and the rows looked up in
    one call.
    """
    if features[0].combiner is None:
        vectors = table.look_up(features, bags, training)
        return vectors, vectors
    table_set, learns = table.table_set, table.learns(training)
    rows = [
        its_bags.with_values(its_rows)
        for its_bags, its_rows in zip(bags, table_set.rows_of(features, bags, learns), strict=True)
    ]
    singly = [dataclasses.replace(feature, combiner=None) for feature in features]
    vectors, losses = table_set.look_up(
        [*features, *singly],
        [*rows, *(its_rows.singles() for its_rows in rows)],
        learns,
        table_set.of_rows(table.table_name),
    )
    for loss in losses:
        table.add_loss(loss)
    return vectors[: len(features)], vectors[len(features) :]


def _check_scores(table: layers.Embedding, batches: Iterable[Batch]) -> None:
    if not isinstance(getattr(table.table_set.ids[table.table_name], "policy", None), Custom):
        return
    for batch in batches:
        if batch.scores is None:
            raise ValueError(
                f"{batch.label}: ids={table.ids} go by scores that come with the ids, and "
                "merlin-models' blocks hand tables ids alone. Choose another policy, or call the "
                "table by itself with scores=."
            )


class Asked(NamedTuple):
    """What is looked up in one table; arguments of `look_up`."""

    table: layers.Embedding
    batches: Mapping[str, Batch]
    combiner: str | None


@tf.autograph.experimental.do_not_convert
def look_up_together(asked: Mapping[str, Asked], training: bool) -> dict[str, dict[str, Any]]:
    """`look_up` in several tables, by one native call.

    Tables that exist, whose rows stay, and that have no regularizers.

    Args:
        asked: by any name.
        training: whether the step trains.

    Returns:
        By that name, what `look_up` returns.
    """
    flats, requests = [], []
    for table, batches, combiner in asked.values():
        its_flats, features, bags = _parts(table, batches, combiner)
        flats += its_flats
        requests += table.table_set.requests(features, bags, table.learns(training))
    restored = (
        flat.restore(found) for flat, found in zip(flats, tables.lookup(requests), strict=True)
    )
    return {
        name: {feature: next(restored) for feature in each.batches} for name, each in asked.items()
    }


def _parts(
    table: layers.Embedding, batches: Mapping[str, Batch], combiner: str | None
) -> tuple[list[flatten.Flat], list[FeatureConfig], list[Bags]]:
    config = table.table_set.configs[table.table_name]
    flats = [_flat(table, batch, combiner) for batch in batches.values()]
    return (
        flats,
        [FeatureConfig(name, config, combiner) for name in batches],
        [flat.bags for flat in flats],
    )


def _flat(table: layers.Embedding, batch: Batch, combiner: str | None) -> flatten.Flat:
    table.check_mask(batch.ids)
    if combiner is None:
        flatten.check_not_sparse(batch.ids, batch.label)
        return flatten.single(batch.ids, table.padding_id, batch.label, batch.scores)
    bags = Bags.of(batch.ids, None, table.padding_id, batch.label, batch.scores)
    return flatten.Flat(bags, bags.expand)
