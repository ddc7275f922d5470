"""keras.layers.Embedding, a sum over the bag, and Keras's own optimizers.

One layer a table is how Keras models hold categorical features. The sum is `keras.ops.sum`, which
TensorFlow runs faster than `embedding_lookup_sparse` on bags of one length. Not compiled with XLA:
its gradient of a gather is dense, so that a step would sweep every table. Keras has no row-wise
Adagrad, and its Adam decays the moments of the whole table in each step (dense semantics).
"""

from __future__ import annotations

import numpy as np

from adapters import base
from adapters import tensorflow_runtime as runtime


class Adapter(base.Adapter):
    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        runtime.configure(threads)

    def versions(self) -> dict[str, str]:
        from tensorflow import keras

        return {"tensorflow": runtime.tf.__version__, "keras": keras.__version__}

    def build(self, tables: int, rows: int, dim: int) -> None:
        from tensorflow import keras

        self.dim = dim
        self.layers = [keras.layers.Embedding(rows, dim, "zeros") for _ in range(tables)]
        for layer in self.layers:
            layer.build((None,))
        self.variables = [layer.trainable_variables[0] for layer in self.layers]
        for variable in self.variables:
            runtime.fill(variable.value)

    def load(self, values: np.ndarray) -> None:
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)

    def read(self) -> np.ndarray:
        return np.stack([np.asarray(variable) for variable in self.variables])

    def _optimizer(self, group: str):
        from cases import LEARNING_RATE
        from tensorflow import keras

        rule = {
            "sgd": keras.optimizers.SGD,
            "adagrad": keras.optimizers.Adagrad,
            "adam": keras.optimizers.Adam,
        }[group]
        return rule(LEARNING_RATE)

    def steps(self, group: str, ids: np.ndarray) -> dict[str, base.Step]:
        from tensorflow import keras

        one_hot = ids.shape[-1] == 1

        def lookup(batch):
            vectors = [layer(x) for layer, x in zip(self.layers, batch, strict=True)]
            return vectors if one_hot else [keras.ops.sum(v, axis=1) for v in vectors]

        batches = runtime.dense_ids(ids)
        if group == "forward":
            function = runtime.forward_function(lookup)
        else:
            optimizer = self._optimizer(group)
            optimizer.build(self.variables)
            function = runtime.training_function(
                lookup,
                [variable.value for variable in self.variables],
                lambda gradients: optimizer.apply(gradients, self.variables),
                ids,
                self.dim,
            )
        return {"gather + sum": runtime.steps(function, batches)}

    def release(self) -> None:
        """Functions and optimizers are held by the steps alone."""
