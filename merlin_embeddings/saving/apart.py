"""Keras's files without tables: these stand in a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from merlin_embeddings import compat
from merlin_embeddings.checkpoint import Checkpoint, references
from merlin_embeddings.saving.parts import parts_of
from merlin_embeddings.saving.save import save
from merlin_embeddings.tables import MovingTable


@contextmanager
def tables_apart(model: Any, path: str | os.PathLike, overwrite: bool = False) -> Iterator[None]:
    """Saves a model as a checkpoint, to which `.keras` and weights files then refer.

    Files that Keras writes inside of it have, in place of tables and of what the optimizer keeps
    for their rows, the checkpoint's path and id: they stay small, are written at once, and rows are
    read from the checkpoint as the file is loaded. It has to stay: `tables_from` says where it was
    moved. Tables whose rows move are in the file as ever, with the rows that are in use.

    Args:
        model: a Keras model, or a layer; built.
        path: of the checkpoint, a folder that isn't there yet.
        overwrite: see `save`.

    Raises:
        RuntimeError: on Keras 2, whose files have no place for it.

    >>> import tempfile, os
    >>> from tensorflow import keras
    >>> import merlin_embeddings as me
    >>> item = me.layers.Embedding(100_000, 8, combiner="sum", name="item")
    >>> model = keras.Sequential([keras.Input((2,), dtype="int64"), item])
    >>> folder = tempfile.mkdtemp()
    >>> with me.saving.tables_apart(model, folder + "/tables"):
    ...     model.save(folder + "/model.keras")
    >>> os.path.getsize(folder + "/model.keras") < 100_000
    True
    >>> loaded = keras.models.load_model(folder + "/model.keras")
    >>> bool((loaded.weights[0] == model.weights[0]).numpy().all())
    True
    """
    if not compat.has_keras_3():
        raise RuntimeError(
            "tables_apart is for Keras 3, whose files ask layers what to write; with Keras 2 save "
            "tables by me.save, and the model's config by model.to_json()"
        )
    saved = save(model, path, overwrite=overwrite)
    there = Checkpoint(saved.path)
    tables = {
        name: part.table
        for name, part in parts_of(model).tables.items()
        if not isinstance(part.table, MovingTable)
    }
    with references.referring(tables, there.path, there.id):
        yield


@contextmanager
def tables_from(path: str | os.PathLike) -> Iterator[None]:
    """Says where the checkpoint is now that files refer to which are loaded meanwhile.

    Args:
        path: of the checkpoint.
    """
    with references.moved_to(os.fspath(path)):
        yield
