"""A trained model on disk: as `.keras` to go on with, as SavedModel to serve."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from movielens_data import Ratings
from movielens_training import predict
from tensorflow import keras

from merlin_embeddings.native.library import PATH as OP_LIBRARY

SERVER = Path(__file__).parent / "movielens_server.py"


def reloaded(model: keras.Model, ratings: Ratings, rows, folder: Path) -> np.ndarray:
    """What the model predicts for the rows once it was saved as `.keras` and loaded again."""
    path = folder / "model.keras"
    model.save(path)
    return predict(keras.models.load_model(path), ratings, rows)


def served(model: keras.Model, ratings: Ratings, rows, folder: Path) -> np.ndarray:
    """What a fresh process predicts that has nothing but the exported model and the op library.

    Requests are plain arrays: genres come as `[B, 6]`, padded with 0.
    """
    exported, inputs, outputs = folder / "exported", folder / "request.npz", folder / "answer.npy"
    model.export(exported, verbose=False)
    request, _ = ratings.take(rows)
    request["genres"] = request["genres"].to_tensor()
    np.savez(inputs, **{name: tensor.numpy() for name, tensor in request.items()})
    command = [sys.executable, SERVER, OP_LIBRARY, exported, inputs, outputs]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"The serving process ended with {done.returncode}:\n{done.stderr}")
    return np.load(outputs)
