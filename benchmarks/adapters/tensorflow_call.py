"""What a `tf.function` costs that is given the same ids and gives outputs that exist already.

Not a peer: the part of a TensorFlow forward step that no lookup can save. One input and one output
a table pass through the call; the outputs are variables' buffers, which are shared, not copied.
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

    def load(self, values: np.ndarray) -> None:
        """No tables."""

    def steps(self, group: str, ids: np.ndarray) -> dict[str, base.Step]:
        outputs = [tf.zeros((ids.shape[2], self.dim)) for _ in range(ids.shape[1])]
        variables = [tf.Variable(output) for output in outputs]
        batches = runtime.dense_ids(ids)

        def read(batch):
            del batch
            return [variable.read_value() for variable in variables]

        return {"tf.function": runtime.steps(runtime.forward_function(read), batches)}

    def release(self) -> None:
        """Nothing is kept."""
