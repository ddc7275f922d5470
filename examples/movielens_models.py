"""DLRM and DCN-v2, written once for any embedding layer.

A model begins with an `InputBlock`, which knows from the schema which columns there are. Its
`categorical` part is a layer from the batch's ids to one pooled vector a column, `{column: [B]} ->
{column: [B, D]}`. `merlin_embeddings` has that layer; `KerasEmbeddings` makes the same of
`keras.layers.Embedding`.
"""

import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

MODELS = ("dlrm", "dcn")
serializable = keras.utils.register_keras_serializable("movielens")


def merlin_layer(schema, dim: int, seed: int):
    """A table a column, all in one layer; the genres of a film are averaged."""
    features = me.features_from_schema(
        schema, embedding_dim=dim, combiner="mean", padding_id={"genres": 0}, seed=seed
    )
    return me.layers.Embeddings(features, name="embeddings")


def keras_layer(schema, dim: int, seed: int):
    """The same with Keras's own parts."""
    rows = {column.name: column.rows for column in me.data.categorical(schema)}
    return KerasEmbeddings(rows, dim, seed)


@serializable
class KerasEmbeddings(keras.layers.Layer):
    """An `Embedding` a feature; genres, padded with 0, are averaged by hand."""

    def __init__(self, rows: dict[str, int], dim: int, seed: int = 0, name="embeddings", **kwargs):
        super().__init__(name=name, autocast=False, **kwargs)
        self.rows, self.dim, self.seed = dict(rows), dim, seed
        self.tables = {
            feature: keras.layers.Embedding(
                rows, dim, keras.initializers.RandomUniform(seed=seed + i), name=feature
            )
            for i, (feature, rows) in enumerate(self.rows.items())
        }

    def build(self, input_shape):
        for feature, table in self.tables.items():
            table.build(input_shape[feature])

    def call(self, inputs):
        return {
            feature: self._mean(table, inputs[feature])
            if feature == "genres"
            else table(inputs[feature])
            for feature, table in self.tables.items()
        }

    def _mean(self, table, bags):
        ids = bags.to_tensor() if isinstance(bags, tf.RaggedTensor) else bags
        there = tf.cast(ids != 0, tf.float32)[..., None]
        return tf.math.divide_no_nan(
            tf.reduce_sum(table(ids) * there, axis=1), tf.reduce_sum(there, axis=1)
        )

    def compute_output_spec(self, inputs):
        return {
            feature: keras.KerasTensor((ids.shape[0], self.dim), self.compute_dtype)
            for feature, ids in inputs.items()
            if feature in self.tables
        }

    def get_config(self):
        return super().get_config() | {"rows": self.rows, "dim": self.dim, "seed": self.seed}


@serializable
class DotInteraction(keras.layers.Layer):
    """The dot products of all pairs of F vectors: `[B, F, D] -> [B, F * (F - 1) / 2]`.

    The interaction of DLRM (Naumov et al., 2019, https://arxiv.org/abs/1906.00091).
    """

    def call(self, vectors):
        products = tf.matmul(vectors, vectors, transpose_b=True)
        count = vectors.shape[1]
        below_diagonal = [i * count + j for i in range(count) for j in range(i)]
        return tf.gather(tf.reshape(products, [-1, count * count]), below_diagonal, axis=1)

    def compute_output_shape(self, shape):
        return (shape[0], shape[1] * (shape[1] - 1) // 2)


@serializable
class CrossNetwork(keras.layers.Layer):
    """`depth` times `x = x0 * (W x + b) + x`, from `x = x0`: `[B, D] -> [B, D]`.

    The cross network of DCN-v2 (Wang et al., 2021, https://arxiv.org/abs/2008.13535, equation 1).
    """

    def __init__(self, depth: int, **kwargs):
        super().__init__(**kwargs)
        self.depth = depth

    def build(self, input_shape):
        self.steps = [
            keras.layers.Dense(input_shape[-1], name=f"step_{i}") for i in range(self.depth)
        ]
        for step in self.steps:
            step.build(input_shape)

    def call(self, x0):
        x = x0
        for step in self.steps:
            x = x0 * step(x) + x
        return x

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return super().get_config() | {"depth": self.depth}


def mlp(units, name: str, dropout: float = 0.0, seed: int = 0) -> keras.Sequential:
    """Dense layers with ReLU, each followed by dropout."""
    layers = []
    for i, width in enumerate(units):
        layers.append(keras.layers.Dense(width, activation="relu"))
        layers.append(keras.layers.Dropout(dropout, seed=seed + i))
    return keras.Sequential(layers, name=name)


def build_model(kind: str, ratings, embeddings, dim: int, dropout: float, seed: int):
    """A model from a batch's columns to the probability `[B, 1]` that the user likes the film.

    It keeps the fingerprint of the workflow that made the columns.
    """
    inputs = me.data.keras_inputs(ratings.schema)
    parts = {"categorical": embeddings, "fingerprint": ratings.fingerprint, "name": "inputs"}
    if kind == "dlrm":
        bottom = mlp([64, dim], "bottom")
        block = me.layers.InputBlock(ratings.schema, continuous=bottom, aggregation=None, **parts)
        vectors = block(inputs)
        products = DotInteraction(name="interaction")(
            keras.ops.stack(list(vectors.values()), axis=1)
        )
        x = keras.layers.Concatenate()([vectors["continuous"], products])
        x = mlp([128, 64], "top", dropout, seed)(x)
    elif kind == "dcn":
        x0 = me.layers.InputBlock(ratings.schema, aggregation="concat", **parts)(inputs)
        x = CrossNetwork(depth=2, name="cross")(x0)
        x = mlp([128, 64], "deep", dropout, seed)(x)
    else:
        raise ValueError(f"A model is one of {', '.join(MODELS)}, not {kind!r}.")
    like = keras.layers.Dense(1, activation="sigmoid", name="like")(x)
    return keras.Model(inputs, like, name=kind)
