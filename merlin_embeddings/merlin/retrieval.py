"""Parts of merlin-models that make their tables themselves, with ours in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import merlin.models.tf as mm
from merlin.models.tf.outputs.base import DotProduct
from merlin.schema import ColumnSchema, Schema, Tags
from tensorflow import keras

from merlin_embeddings.merlin.embedding_table import EmbeddingTable


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class _Pick(keras.layers.Layer):
    """One column's vectors out of a dict."""

    def __init__(self, column: str, **kwargs: Any):
        super().__init__(**kwargs)
        self.column = column

    def call(self, vectors: Mapping[str, Any]) -> Any:
        return vectors[self.column]

    def compute_output_shape(self, shapes: Mapping[str, Any]) -> Any:
        return shapes[self.column]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "column": self.column}


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class EmbeddingEncoder(mm.EmbeddingEncoder):
    """merlin-models' `EmbeddingEncoder`, which makes its table itself, with one of ours.

    Args:
        schema: a `ColumnSchema`, or a `Schema` whose first column counts.
        dim: D, the length of a vector.
        embeddings_l2_batch_regularization: the table's `l2_batch_regularization_factor`.
        post: a layer behind the vectors `[B, D]`, or None.
        **kwargs: of `EmbeddingTable`, and `pre` and `prep_features` of merlin-models' `Encoder`.

    Raises:
        ValueError: what `EmbeddingTable` refuses.
    """

    def __init__(
        self,
        schema: ColumnSchema | Schema,
        dim: int,
        *,
        embeddings_l2_batch_regularization: float = 0.0,
        post: Any = None,
        pre: Any = None,
        prep_features: bool = True,
        **kwargs: Any,
    ):
        column = schema.first if isinstance(schema, Schema) else schema
        table = EmbeddingTable(
            dim, column, l2_batch_regularization_factor=embeddings_l2_batch_regularization, **kwargs
        )
        # The parent's constructor would make another table.
        mm.Encoder.__init__(
            self, table, _Pick(column.name), pre=pre, post=post, prep_features=prep_features
        )


def MatrixFactorizationModelV2(
    schema: Schema,
    dim: int,
    query_id_tag: Tags = Tags.USER_ID,
    candidate_id_tag: Tags = Tags.ITEM_ID,
    embeddings_initializers: Any = None,
    embeddings_l2_batch_regularization: float | Mapping[str, float] = 0.0,
    post: Any = None,
    outputs: Any = None,
    negative_samplers: Any = None,
    logits_temperature: float = 1.0,
    table: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> mm.RetrievalModelV2:
    """merlin-models' function of this name, which has no argument for the tables, with ours.

    Args:
        schema: has a column with each of the two tags.
        dim: D, the length of a vector.
        query_id_tag: of the column with the queries' ids.
        candidate_id_tag: of the column with the candidates' ids.
        embeddings_initializers: one for both tables, or a dict of them by column.
        embeddings_l2_batch_regularization: one factor for both tables, or a dict by column.
        post: a layer behind the vectors of both.
        outputs: an output, or a list of them; None: a `ContrastiveOutput` of dot products.
        negative_samplers: of that; None: the batch's other candidates.
        logits_temperature: of that.
        table: further arguments of both `EmbeddingTable`s, such as `{"table_dtype": "bfloat16"}`.
        **kwargs: of the `ContrastiveOutput`.

    Raises:
        ValueError: the schema has no column with one of the tags.
    """
    columns = [_column(schema, tag) for tag in (query_id_tag, candidate_id_tag)]
    query, candidate = (
        EmbeddingEncoder(
            column,
            dim,
            embeddings_initializer=_of(embeddings_initializers, column, None),
            embeddings_l2_batch_regularization=_of(embeddings_l2_batch_regularization, column, 0.0),
            post=post,
            **(table or {}),
        )
        for column in columns
    )
    if not outputs:
        outputs = mm.ContrastiveOutput(
            to_call=DotProduct(),
            negative_samplers=negative_samplers or ["in-batch"],
            logits_temperature=logits_temperature,
            schema=Schema([columns[1]]),
            **kwargs,
        )
    if isinstance(outputs, list):
        outputs = mm.ParallelBlock(*outputs)
    return mm.RetrievalModelV2(query=query, candidate=candidate, output=outputs)


def _column(schema: Schema, tag: Tags) -> ColumnSchema:
    found = schema.select_by_tag(tag)
    if not found:
        raise ValueError(
            f"No column of the schema has the tag {tag}; it has {', '.join(schema.column_names)}."
        )
    return found.first


def _of(value: Any, column: ColumnSchema, default: Any) -> Any:
    """What an argument says of a column: dicts are by column."""
    return value.get(column.name, default) if isinstance(value, Mapping) else value
