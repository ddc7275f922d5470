"""The process that serves: it knows TensorFlow and the op library, and nothing of the model's code.

python movielens_server.py OP_LIBRARY SAVED_MODEL INPUTS.npz PREDICTIONS.npy
"""

import sys

import numpy as np
import tensorflow as tf


def main(op_library: str, saved_model: str, inputs: str, predictions: str) -> None:
    tf.load_op_library(op_library)
    model = tf.saved_model.load(saved_model)
    with np.load(inputs) as arrays:
        batch = {name: tf.constant(array) for name, array in arrays.items()}
    np.save(predictions, model.serve(batch).numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
