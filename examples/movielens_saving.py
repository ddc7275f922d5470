"""A trained model on disk: as `.keras` or a checkpoint to go on with, as SavedModel to serve."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from movielens_training import predict
from movielens_workflow import Prepared, nvt
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.native.library import PATH as OP_LIBRARY

SERVER = Path(__file__).parent / "movielens_server.py"


def reloaded(model: keras.Model, ratings: Prepared, folder: Path) -> np.ndarray:
    """What the model predicts for the test once it was saved as `.keras` and loaded again.

    A workflow that was fitted anew beside it would be refused.
    """
    path = folder / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    me.data.check_fingerprint(again, nvt.Workflow.load(str(ratings.workflow)))
    return predict(again, ratings, "test")


def restored(model: keras.Model, ratings: Prepared, checkpoint: Path) -> np.ndarray:
    """What a model predicts that was made anew and took what the trained one saved.

    Args:
        model: the trained one.
        ratings: its data.
        checkpoint: a folder, which stays.
    """
    me.save(model, checkpoint, metadata={"data": "MovieLens-100k"}, overwrite=True)
    again = keras.models.clone_model(model)
    me.load(again, checkpoint)
    return predict(again, ratings, "test")


def served(model: keras.Model, ratings: Prepared, raw: pd.DataFrame, folder: Path) -> np.ndarray:
    """What a fresh process predicts for raw rows: it has the workflow and the exported model."""
    exported, requests, answers = folder / "exported", folder / "raw.parquet", folder / "like.npy"
    model.export(exported, verbose=False)
    raw.drop(columns=["like"]).to_parquet(requests)
    command = [sys.executable, SERVER, OP_LIBRARY, ratings.workflow, exported, requests, answers]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"The serving process ended with {done.returncode}:\n{done.stderr}")
    return np.load(answers)
