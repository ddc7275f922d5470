"""What the three TensorFlow peers share: threads, constant ids, one training step.

A step is one call of a concrete function. Eager dispatch is synchronous on the CPU, so a call
returns when every output exists; nothing is copied to numpy inside the timed region.
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf
from cases import output_gradient


def configure(threads: int) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    tf.config.experimental.set_synchronous_execution(True)
    tf.get_logger().setLevel("ERROR")  # it warns of retracing: one function a case is meant


def fill(variable: tf.Variable) -> None:
    """Random values for a table of zeros [R, D], in place: large random tensors that become the
    table cost three tables of memory."""
    rows, dim = variable.shape
    block = np.random.default_rng(0).uniform(-0.05, 0.05, (1 << 16, dim)).astype(np.float32)
    for start in range(0, rows, len(block)):
        stop = min(start + len(block), rows)
        variable[start:stop].assign(block[: stop - start])


def dense_ids(ids: np.ndarray) -> list[list[tf.Tensor]]:
    """ids [N, T, B, L] -> N lists of T tensors, [B] when one-hot, else [B, L]."""
    one_hot = ids.shape[-1] == 1
    return [
        [tf.constant(table[:, 0] if one_hot else table, tf.int64) for table in batch]
        for batch in ids
    ]


def forward_function(lookup):
    """`lookup(batch) -> list of [B, D]` as a graph that must return every output."""
    return tf.function(lambda batch: list(lookup(batch)))


def training_function(lookup, variables, apply, ids: np.ndarray, dim: int):
    """forward + backward from a fixed output gradient + `apply(gradients)`, as a graph."""
    gradient = [tf.constant(g) for g in output_gradient(ids.shape[1], ids.shape[2], dim)]

    @tf.function
    def train(batch):
        with tf.GradientTape() as tape:
            outputs = lookup(batch)
        apply(tape.gradient(outputs, variables, output_gradients=gradient))

    return train


def steps(function, batches: list):
    """A step on batch i. Traced here, while other workers prepare too, not in the first step.

    The concrete function is called, as a server does: finding it anew by its arguments is Python
    code that costs 0.1 ms a call, half of a small lookup.
    """
    concrete = function.get_concrete_function(batches[0])
    return lambda i: concrete(batches[i])
