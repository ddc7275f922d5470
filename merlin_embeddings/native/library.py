"""Finds and loads the op library, once, and only into the TensorFlow that it was built for."""

from __future__ import annotations

import json
from pathlib import Path

import tensorflow as tf

FOLDER = Path(__file__).resolve().parent.parent / "_ops"
PATH = FOLDER / "libmerlin_embeddings.so"

_REBUILD = (
    "Rebuild it beside the TensorFlow in use: `pip install --no-build-isolation --force-reinstall "
    "--no-deps .` in a checkout, or `make build`."
)


def check_build(folder: Path, version: str) -> None:
    """Raises ImportError unless the library in ``folder`` was built for TensorFlow ``version``.

    A library for another minor version would fail on an undefined symbol, or worse, load.
    """
    record = folder / "build.json"
    if not record.exists() or not (folder / PATH.name).exists():
        raise ImportError(f"merlin_embeddings has no op library in {folder}. {_REBUILD}")
    built = json.loads(record.read_text())["tensorflow"]
    if built.split(".")[:2] != version.split(".")[:2]:
        raise ImportError(
            f"merlin_embeddings' op library was built for TensorFlow {built}, but TensorFlow "
            f"{version} is installed. {_REBUILD}"
        )


check_build(FOLDER, tf.__version__)
ops = tf.load_op_library(str(PATH))
