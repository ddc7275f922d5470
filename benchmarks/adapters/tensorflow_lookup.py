"""tf.nn.embedding_lookup(_sparse) over tf.Variables, with TensorFlow's own sparse updates.

One-hot features use `tf.nn.embedding_lookup`, multi-hot ones `embedding_lookup_sparse` with either
kind of input that it takes. The optimizers are those of `tf.compat.v1.train`: on a variable looked
up sparsely they sum duplicate rows and call the sparse kernels, where Keras 3 sweeps the table.
They have no row-wise Adagrad and no lazy Adam.
"""

from __future__ import annotations

import numpy as np

from adapters import base
from adapters import tensorflow_runtime as runtime

tf = runtime.tf


class Adapter(base.Adapter):
    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        runtime.configure(threads)

    def versions(self) -> dict[str, str]:
        return {"tensorflow": tf.__version__}

    def build(self, tables: int, rows: int, dim: int) -> None:
        self.dim = dim
        self.variables = [tf.Variable(tf.zeros((rows, dim))) for _ in range(tables)]
        for variable in self.variables:
            runtime.fill(variable)

    def load(self, values: np.ndarray) -> None:
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)

    def read(self) -> np.ndarray:
        return np.stack([variable.numpy() for variable in self.variables])

    def _inputs(self, ids: np.ndarray) -> dict[str, list[list[object]]]:
        _, _, bags, hotness = ids.shape
        if hotness == 1:
            return {"embedding_lookup": runtime.dense_ids(ids)}
        indices = tf.constant(
            np.stack([np.repeat(np.arange(bags), hotness), np.tile(np.arange(hotness), bags)], 1)
        )
        splits = tf.constant(np.arange(0, bags * hotness + 1, hotness))
        flat = [[tf.constant(table.reshape(-1), tf.int64) for table in batch] for batch in ids]
        return {
            "embedding_lookup_sparse, SparseTensor": [
                [tf.SparseTensor(indices, values, (bags, hotness)) for values in batch]
                for batch in flat
            ],
            "embedding_lookup_sparse, RaggedTensor": [
                [tf.RaggedTensor.from_row_splits(v, splits, validate=False) for v in batch]
                for batch in flat
            ],
        }

    def steps(self, group: str, ids: np.ndarray) -> dict[str, base.Step]:
        from cases import LEARNING_RATE

        one_hot = ids.shape[-1] == 1

        def lookup(batch):
            if one_hot:
                return [
                    tf.nn.embedding_lookup(variable, x)
                    for variable, x in zip(self.variables, batch, strict=True)
                ]
            # The fast path skips a pass that drops ids of weight 0, of which there are none.
            return [
                tf.nn.embedding_lookup_sparse(
                    variable, x, None, combiner="sum", allow_fast_lookup=True
                )
                for variable, x in zip(self.variables, batch, strict=True)
            ]

        def step(batches):
            if group == "forward":
                function = runtime.forward_function(lookup)
            else:
                rule = {
                    "sgd": tf.compat.v1.train.GradientDescentOptimizer,
                    "adagrad": tf.compat.v1.train.AdagradOptimizer,
                }[group]
                optimizer = rule(LEARNING_RATE)
                function = runtime.training_function(
                    lookup,
                    self.variables,
                    lambda gradients: optimizer.apply_gradients(
                        zip(gradients, self.variables, strict=True)
                    ),
                    ids,
                    self.dim,
                )
            return runtime.steps(function, batches)

        return {name: step(batches) for name, batches in self._inputs(ids).items()}

    def release(self) -> None:
        """Functions and optimizers are held by the steps alone."""
