"""DLRM, written once for any embedding layer, and the layers that are compared.

An embedding layer takes the ids of a batch, `{column: [B] or ragged [B, None]}`, and gives
`[B, F, D]`: one vector a column, the mean over the ids of a list.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from criteo_profile import EMBEDDINGS, UPDATE_SCOPE
from tensorflow import keras

import merlin_embeddings as me

BOTTOM, TOP = (512, 256), (512, 256)  # DLRM's for the Kaggle data; then D, and 1
# Adagrad as DLRM has it: the gradients of a mean over thousands of rows would not get past Keras's
# starting value of 0.1. Keras and ours add epsilon under the root.
ADAGRAD = {"initial_accumulator_value": 0.0, "epsilon": 1e-7}
RANGE = 0.05
BLOCK = 1 << 16


class Ours(keras.layers.Layer):
    """`merlin_embeddings.layers.Embeddings`: all tables in one call."""

    def __init__(self, schema, dim: int, **kwargs):
        super().__init__(**kwargs)
        self.embeddings = me.layers.Embeddings(
            me.features_from_schema(schema, dim, initializer="zeros")
        )

    def build(self, shape):
        self.embeddings.build()
        self.tables = list(self.embeddings.tables.values())

    def call(self, ids):
        return tf.stack(list(self.embeddings(ids).values()), axis=1)

    def compute_output_spec(self, ids):
        return _spec(ids, self.embeddings.features["C1"].table.embedding_dim)

    def fill(self, blocks) -> None:
        for i, table in enumerate(self.tables):
            for start, values in blocks(i, table.rows):
                keys = np.arange(start, start + len(values))
                table.write(me.tables.Entries(keys=keys, vectors=values))


class KerasTables(keras.layers.Layer):
    """A `keras.layers.Embedding` a column; the mean over a list by hand, as Keras has none."""

    def __init__(self, schema, dim: int, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim
        self.tables = {
            column.name: keras.layers.Embedding(column.rows, dim, "zeros", name=column.name)
            for column in me.data.categorical(schema)
        }

    def build(self, shape):
        for table in self.tables.values():
            table.build((None,))

    def call(self, ids):
        return tf.stack([_mean(table, ids[name]) for name, table in self.tables.items()], axis=1)

    def compute_output_spec(self, ids):
        return _spec(ids, self.dim)

    def fill(self, blocks) -> None:
        _assign([table.embeddings.value for table in self.tables.values()], blocks)


def _mean(table, ids):
    if not isinstance(ids, tf.RaggedTensor):
        return table(ids)
    there = tf.sequence_mask(ids.row_lengths(), dtype=tf.float32)[..., None]
    total = tf.reduce_sum(table(ids.to_tensor()) * there, axis=1)
    return tf.math.divide_no_nan(total, tf.reduce_sum(there, axis=1))


class SparseLookups(keras.layers.Layer):
    """`tf.nn.embedding_lookup_sparse` on a variable a column."""

    def __init__(self, schema, dim: int, **kwargs):
        super().__init__(**kwargs)
        self.columns, self.dim = me.data.categorical(schema), dim

    def build(self, shape):
        self.tables = {
            column.name: self.add_weight((column.rows, self.dim), "zeros", name=column.name)
            for column in self.columns
        }

    def call(self, ids):
        vectors = []
        for name, table in self.tables.items():
            bags = ids[name]
            if not isinstance(bags, tf.RaggedTensor):
                bags = tf.RaggedTensor.from_uniform_row_length(bags, 1)
            vectors.append(
                tf.nn.embedding_lookup_sparse(
                    table.value, bags, None, combiner="mean", allow_fast_lookup=True
                )
            )
        return tf.stack(vectors, axis=1)

    def compute_output_spec(self, ids):
        return _spec(ids, self.dim)

    def fill(self, blocks) -> None:
        _assign([table.value for table in self.tables.values()], blocks)


class NoTables(keras.layers.Layer):
    """The same vector for every id of a column: what a step costs without lookups and tables.

    The vectors are trained, so that the model in front of them has all of its backward pass.
    """

    def __init__(self, schema, dim: int, **kwargs):
        super().__init__(**kwargs)
        self.shape = (len(me.data.categorical(schema)), dim)

    def build(self, shape):
        self.vectors = self.add_weight(self.shape, "zeros", name="vectors")

    def call(self, ids):
        first = next(iter(ids.values()))
        batch = first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0]
        return tf.broadcast_to(self.vectors, [batch, *self.shape])

    def compute_output_spec(self, ids):
        return _spec(ids, self.shape[1])

    def fill(self, blocks) -> None:
        rows = [next(blocks(i, 1))[1][0] for i in range(self.shape[0])]
        self.vectors.assign(np.stack(rows))


class KerasAdagrad(keras.optimizers.Adagrad):
    """Keras's, with a name around what it does to tables, which the profile looks for."""

    def update_step(self, gradient, variable, learning_rate):
        if isinstance(gradient, tf.IndexedSlices):
            with tf.name_scope(UPDATE_SCOPE):
                self.update_rows(gradient, variable, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def update_rows(self, gradient, variable, learning_rate):
        super().update_step(gradient, variable, learning_rate)


class SparseAdagrad(KerasAdagrad):
    """Keras's Adagrad, but rows that were looked up are updated by TensorFlow's sparse kernel.

    As Keras 2 and `tf.compat.v1.train` do: duplicate rows are summed, then
    ResourceSparseApplyAdagradV2 writes the rows seen. Keras 3 sweeps the whole table instead. The
    kernel adds epsilon to the root; so that all compute the same, accumulators start from it.
    """

    def __init__(self, learning_rate, initial_accumulator_value=0.1, epsilon=1e-7):
        super().__init__(learning_rate, initial_accumulator_value + epsilon, epsilon=0.0)

    def update_rows(self, gradient, variable, learning_rate):
        rows, places = tf.unique(gradient.indices)
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=variable.handle,
            accum=self._accumulators[self._get_variable_index(variable)].value.handle,
            lr=learning_rate,
            epsilon=self.epsilon,
            grad=tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows)),
            indices=rows,
        )


class DotInteraction(keras.layers.Layer):
    """Dot products of all pairs of F vectors: `[B, F, D] -> [B, F * (F - 1) / 2]`."""

    def call(self, vectors):
        products = tf.matmul(vectors, vectors, transpose_b=True)
        count = vectors.shape[1]
        below_diagonal = [i * count + j for i in range(count) for j in range(i)]
        return tf.gather(tf.reshape(products, [-1, count * count]), below_diagonal, axis=1)

    def compute_output_shape(self, shape):
        return (shape[0], shape[1] * (shape[1] - 1) // 2)


def _spec(ids, dim):
    first = next(iter(ids.values()))
    return keras.KerasTensor((first.shape[0], len(ids), dim), "float32")


def _assign(variables, blocks) -> None:
    for i, variable in enumerate(variables):
        for start, values in blocks(i, variable.shape[0]):
            variable[start : start + len(values)].assign(values)


def blocks(seed: int, dim: int):
    """Initial values by table, uniform as Keras's: `(table, rows) -> (first row, [N, D]) ...`."""

    def of_table(table: int, rows: int):
        random = np.random.default_rng([seed, table])
        for start in range(0, rows, BLOCK):
            count = min(BLOCK, rows - start)
            values = random.random((count, dim), np.float32)
            yield start, (2 * values - 1) * np.float32(RANGE)

    return of_table


def _mlp(x, widths, name: str, seed: int):
    for i, width in enumerate(widths):
        x = keras.layers.Dense(
            width,
            "relu",
            kernel_initializer=keras.initializers.GlorotUniform(seed + i),
            name=f"{name}_{i}",
        )(x)
    return x


def dlrm(schema, embeddings, dim: int, seed: int) -> keras.Model:
    """A model from a batch of `me.data.batches` to the logit [B] of a click.

    DLRM (Naumov et al., 2019, https://arxiv.org/abs/1906.00091); its dense weights depend on the
    seed and not on the embeddings.
    """
    inputs = me.data.keras_inputs(schema)
    ids = {column.name: inputs[column.name] for column in me.data.categorical(schema)}
    numbers = [inputs[column.name] for column in me.data.continuous(schema)]
    bottom = _mlp(keras.ops.stack(numbers, axis=1), [*BOTTOM, dim], "bottom", seed)
    vectors = embeddings(ids)
    all_vectors = keras.layers.Concatenate(axis=1)([bottom[:, None, :], vectors])
    x = keras.layers.Concatenate()([bottom, DotInteraction(name="interaction")(all_vectors)])
    x = _mlp(x, TOP, "top", seed + 10)
    last = keras.layers.Dense(
        1, kernel_initializer=keras.initializers.GlorotUniform(seed + 20), name="logit"
    )(x)
    return keras.Model(inputs, last[:, 0], name="dlrm")


@dataclass(frozen=True)
class Competitor:
    """An embedding layer with the optimizer that trains it best."""

    title: str
    layer: type
    optimizer: type


COMPETITORS = {
    "ours": Competitor("merlin_embeddings", Ours, me.optimizers.Adagrad),
    "keras": Competitor("keras.layers.Embedding", KerasTables, KerasAdagrad),
    "tensorflow": Competitor("tf.nn.embedding_lookup_sparse", SparseLookups, SparseAdagrad),
    "none": Competitor("no tables", NoTables, KerasAdagrad),
}


def compiled(name: str, schema, dim: int, seed: int, learning_rate: float, adagrad=ADAGRAD):
    """The model of a competitor, all of them with the same weights."""
    competitor = COMPETITORS[name]
    embeddings = competitor.layer(schema, dim, name=EMBEDDINGS)
    model = dlrm(schema, embeddings, dim, seed)
    embeddings.fill(blocks(seed, dim))
    model.compile(
        competitor.optimizer(learning_rate, **adagrad),
        keras.losses.BinaryCrossentropy(from_logits=True),
        jit_compile=False,  # XLA makes the gradient of a gather as large as the table
    )
    return model
