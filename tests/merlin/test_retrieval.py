"""What of merlin-models makes its table itself, with ours in it."""

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

import merlin_embeddings.merlin as mem


def column(name, count, *tags):
    domain = {"domain": {"name": name, "min": 0, "max": count - 1}}
    return ColumnSchema(name, [Tags.CATEGORICAL, *tags], domain, np.int64)


SCHEMA = Schema([column("user", 7, Tags.USER_ID), column("item", 5, Tags.ITEM_ID)])
BATCH = {"user": tf.constant([6, 0, 6]), "item": tf.constant([4, 4, 1])}


def test_an_encoder_gives_the_rows_of_its_table():
    encoder = mem.EmbeddingEncoder(SCHEMA.select_by_tag(Tags.ITEM_ID), 3, post=mm.L2Norm())
    found = encoder(BATCH)
    rows = encoder.to_dataset().to_ddf().compute().to_numpy()
    assert rows.shape == (5, 3)
    expected = rows[[4, 4, 1]] / np.linalg.norm(rows[[4, 4, 1]], axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    again = mem.EmbeddingEncoder.from_config(encoder.get_config())
    assert isinstance(again, mem.EmbeddingEncoder)
    assert isinstance(again.blocks[0], mem.EmbeddingTable)
    assert again(BATCH).shape == (3, 3)


def test_factorization_scores_with_dot_products_of_both_tables():
    model = mem.MatrixFactorizationModelV2(
        SCHEMA,
        3,
        embeddings_initializers={"user": "ones"},
        embeddings_l2_batch_regularization={"item": 0.5},
        table={"table_dtype": "bfloat16"},
    )
    scores = model(BATCH, training=False)
    user, item = (
        encoder.blocks[0].table.embeddings
        for encoder in (model.query_encoder, model.candidate_encoder)
    )
    assert user.dtype == item.dtype == tf.bfloat16
    user, item = (tf.cast(weight, tf.float32).numpy() for weight in (user, item))
    np.testing.assert_array_equal(user, np.ones((7, 3)))
    picked = item[[4, 4, 1]]
    np.testing.assert_allclose(np.ravel(scores), picked.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(sum(model.losses), 0.5 * (picked**2).sum(), rtol=1e-5)


def test_a_schema_without_a_tag():
    with pytest.raises(ValueError, match=r"No column .* tag Tags.USER_ID; it has item"):
        mem.MatrixFactorizationModelV2(SCHEMA.select_by_name(["item"]), 3)
