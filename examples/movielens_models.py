"""DLRM and DCN-v2, written once for any embedding layer.

A model takes `embeddings`: a layer from the batch's ids to one pooled vector a feature,
`{feature: [B]} -> {feature: [B, D]}`. `merlin_embeddings` has that layer; `KerasEmbeddings` makes
the same of `keras.layers.Embedding`.
"""

import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me

MODELS = ("dlrm", "dcn")
serializable = keras.utils.register_keras_serializable("movielens")


def merlin_layer(sizes: dict[str, int], dim: int, seed: int):
    """A table a feature, all in one layer; the genres of a film are averaged."""
    return me.layers.Embeddings(
        {
            feature: me.FeatureConfig(
                feature,
                me.TableConfig(feature, vocabulary_size=size, embedding_dim=dim, seed=seed + i),
                combiner="mean",
                padding_id=0 if feature == "genres" else None,
            )
            for i, (feature, size) in enumerate(sizes.items())
        },
        name="embeddings",
    )


@serializable
class KerasEmbeddings(keras.layers.Layer):
    """The same with Keras's own parts: an `Embedding` a feature, genres averaged by hand."""

    def __init__(self, sizes: dict[str, int], dim: int, seed: int = 0, name="embeddings", **kwargs):
        super().__init__(name=name, **kwargs)
        self.sizes, self.dim, self.seed = dict(sizes), dim, seed
        self.tables = {
            feature: keras.layers.Embedding(
                size, dim, keras.initializers.RandomUniform(seed=seed + i), name=feature
            )
            for i, (feature, size) in enumerate(self.sizes.items())
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
        }

    def get_config(self):
        return super().get_config() | {"sizes": self.sizes, "dim": self.dim, "seed": self.seed}


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


def mlp(x, units, name: str, dropout: float = 0.0, seed: int = 0):
    """Dense layers with ReLU, each followed by dropout."""
    for i, width in enumerate(units):
        x = keras.layers.Dense(width, activation="relu", name=f"{name}_{i}")(x)
        x = keras.layers.Dropout(dropout, seed=seed + i, name=f"{name}_dropout_{i}")(x)
    return x


def build_model(kind: str, embeddings, sizes: dict[str, int], dim: int, dropout: float, seed: int):
    """A model from a batch's features to the probability `[B, 1]` that the user likes the film."""
    ids = {
        feature: keras.Input((None,), dtype="int64", ragged=True, name=feature)
        if feature == "genres"
        else keras.Input((), dtype="int64", name=feature)
        for feature in sizes
    }
    numbers = keras.Input((2,), name="numbers")
    vectors = list(embeddings(ids).values())

    if kind == "dlrm":
        bottom = mlp(numbers, [64, dim], "bottom")
        stacked = keras.ops.stack([bottom, *vectors], axis=1)
        x = keras.layers.Concatenate()([bottom, DotInteraction(name="interaction")(stacked)])
        x = mlp(x, [128, 64], "top", dropout, seed)
    elif kind == "dcn":
        x0 = keras.layers.Concatenate()([*vectors, numbers])
        x = CrossNetwork(depth=2, name="cross")(x0)
        x = mlp(x, [128, 64], "deep", dropout, seed)
    else:
        raise ValueError(f"A model is one of {', '.join(MODELS)}, not {kind!r}.")

    like = keras.layers.Dense(1, activation="sigmoid", name="like")(x)
    return keras.Model({**ids, "numbers": numbers}, like, name=kind)
