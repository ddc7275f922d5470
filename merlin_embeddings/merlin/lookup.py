"""The lookup of all features of a table, in one native call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from merlin_embeddings import layers
from merlin_embeddings.bags import Bags
from merlin_embeddings.config import FeatureConfig
from merlin_embeddings.layers import flatten
from merlin_embeddings.merlin.inputs import batch_size


class Batch(NamedTuple):
    """One feature's ids.

    Attributes:
        ids: `[B]`, `[B, L]`, ragged `[B, None]` or sparse `[B, L]`; without combiner any rank.
        label: what messages call them.
    """

    ids: Any
    label: str


@tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
def look_up(
    table: layers.Embedding, batches: Mapping[str, Batch], combiner: str | None, training: bool
) -> dict[str, Any]:
    """Vectors of features that share a table; losses of regularizers are added to the table's.

    Args:
        table: a layer without combiner.
        batches: by feature.
        combiner: "sum", "mean", "sqrtn", "max" or None.
        training: whether the step trains.

    Returns:
        By feature `[B, D]`, or without combiner the shape of the ids and D, ragged for ragged ids;
        float32.
    """
    config = table.table_set.configs[table.table_name]
    flats = [_flat(table, batch, combiner) for batch in batches.values()]
    features = [FeatureConfig(name, config, combiner) for name in batches]
    bags = [flat.bags for flat in flats]
    regularized = table.activity_regularizer is not None
    if regularized and combiner is not None:
        # The vectors of single ids, too.
        features += [FeatureConfig(name, config, None) for name in batches]
        bags += [flat.bags.singles() for flat in flats]
    vectors = table.look_up(features, bags, training)
    if regularized:
        for batch, singles in zip(batches.values(), vectors[-len(batches) :], strict=True):
            loss = table.activity_regularizer(singles)
            size = tf.cast(batch_size(batch.ids), loss.dtype)
            table.add_loss(tf.math.divide_no_nan(loss, size))
    return {
        name: flat.restore(found)
        for name, flat, found in zip(batches, flats, vectors, strict=False)
    }


def _flat(table: layers.Embedding, batch: Batch, combiner: str | None) -> flatten.Flat:
    table.check_mask(batch.ids)
    if combiner is None:
        flatten.check_not_sparse(batch.ids, batch.label)
        return flatten.single(batch.ids, table.padding_id, batch.label)
    bags = Bags.of(batch.ids, None, table.padding_id, batch.label)
    return flatten.Flat(bags, bags.expand)
