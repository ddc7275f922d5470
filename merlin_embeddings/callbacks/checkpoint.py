"""Checkpoints while a model trains."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from tensorflow import keras

from merlin_embeddings import saving
from merlin_embeddings.saving.background import BackgroundSave
from merlin_embeddings.saving.folder import Folder


class Checkpoint(keras.callbacks.Callback):
    """Saves a model now and then, and lets a training go on that was stopped, to the bit.

    Checkpoints are called `step-0000000123` by the steps that the optimizer has made. A kill at any
    moment leaves the last one that is whole.

    Args:
        path: a folder for the checkpoints of one training.
        every: "epoch": at the end of each epoch; a number: after so many batches.
        keep: how many of the newest stay; None: all. Those that they go on from stay, too.
        background: whether rows are written by a thread while training goes on. The checkpoint is
            of the moment when that is done, as its manifest says, not of that when it was due; one
            that is due meanwhile is left out. `blocked` says how long steps have waited.
        full_every: one in so many is full, the others have what changed since the one before; see
            `saving.save`. 1: all are.
        share: in the background, the share of the time that is spent on writing, of one core.
        metadata: what else to keep with each; plain JSON data.

    Attributes:
        blocked: seconds that training has waited for the last checkpoint.
        last: what was saved last, or None.

    Raises:
        ValueError: an `every`, `keep`, `full_every` or `share` that can't be.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> from tensorflow import keras
        >>> import merlin_embeddings as me
        >>> item = me.layers.Embedding(9, 4, combiner="sum", name="item")
        >>> model = keras.Sequential([keras.Input((2,), dtype="int64"), item])
        >>> model.compile(me.optimizers.SGD(0.1), "mse")
        >>> data = tf.data.Dataset.from_tensors((np.array([[1, 2], [2, 3]]), np.zeros((2, 4))))
        >>> checkpoints = me.callbacks.Checkpoint(tempfile.mkdtemp(), keep=1)
        >>> _ = model.fit(data, epochs=2, verbose=0, callbacks=[checkpoints])
        >>> checkpoints.folder.steps()
        [2]
        >>> history = checkpoints.resume(model, data, epochs=5, verbose=0)
        >>> checkpoints.folder.steps(), history.epoch
        ([5], [2, 3, 4])
    """

    def __init__(
        self,
        path: str | os.PathLike,
        every: str | int = "epoch",
        keep: int | None = None,
        background: bool = False,
        full_every: int = 1,
        share: float = 0.1,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if every != "epoch" and not _is_count(every):
            raise ValueError(
                f"Checkpoint: every={every!r}; it must be 'epoch', or a number of batches"
            )
        if not (keep is None or _is_count(keep)) or not _is_count(full_every):
            raise ValueError(
                f"Checkpoint: keep={keep!r}, full_every={full_every!r}; they must be positive "
                "integers (keep=None: all)"
            )
        if not 0 < share <= 1:
            raise ValueError(f"Checkpoint: share={share!r}; it must be in (0, 1]")
        self.folder = Folder(path)
        self.every, self.keep, self.full_every = every, keep, full_every
        self.background, self.share, self.metadata = background, share, metadata
        self.blocked = 0.0
        self.last: saving.Saved | None = None
        self._running: BackgroundSave | None = None
        self._made = self._batches = self._saved_at = self._in_epoch = self._skipped = 0
        self._at = (0, 0)
        self._model_of_last: Any = None

    # Going on

    def restore(self, model: Any) -> saving.Loaded | None:
        """Has a model, and the process's random generators, be what the newest checkpoint has.

        Args:
            model: built and compiled as it was.

        Returns:
            Where it stands: `epoch`, and `batch`, how many batches of it were made; None: there is
            no checkpoint yet, and nothing was done.
        """
        newest = self.folder.newest()
        if newest is None:
            return None
        found = saving.load(model, newest, process_generators=True)
        self._require_same(model)
        self.last = saving.Saved(found.path, found.step, True, {})
        return found

    def resume(
        self, model: Any, data: Any | Callable[[int], Any], epochs: int, **arguments: Any
    ) -> keras.callbacks.History:
        """As `model.fit`, from where the newest checkpoint stands; from the beginning without one.

        Where an epoch was stopped in its middle, a `fit` of its own makes the rest of it. With
        `use_ema` that ends, as each `fit` does, with the averages in the weights' place.

        Args:
            model: built and compiled as it was.
            data: a `tf.data.Dataset` of an epoch, the same for each; or what gives it for the
                number of an epoch, from 0, say one that is shuffled by that number.
            epochs: how many there are altogether.
            **arguments: of `fit`; this callback is among `callbacks` by itself.

        Returns:
            The history of the epochs that were made now.
        """
        found = self.restore(model)
        epoch, batch = (0, 0) if found is None else (found.epoch, found.batch)
        arguments["callbacks"] = [*arguments.get("callbacks", []), self]
        histories = []

        def fit(some: Any, begin: int, end: int) -> None:
            histories.append(model.fit(some, initial_epoch=begin, epochs=end, **arguments))

        of = data if callable(data) else lambda epoch: data
        if batch:
            self._skipped = batch
            if _has_more(of, epoch, batch):
                fit(of(epoch).skip(batch), epoch, epoch + 1)
            self._skipped = 0
            epoch += 1
        if callable(data):
            for number in range(epoch, epochs):
                fit(of(number), number, number + 1)
        elif epoch < epochs:
            fit(data, epoch, epochs)
        return _joined(histories)

    # Keras

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Counts from here on."""
        del logs
        self._batches = self._saved_at = self._in_epoch = 0
        self._require_same(self.model)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Notes which epoch it is."""
        del logs
        self._at, self._in_epoch = (epoch, self._skipped), 0

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves where it is time to."""
        del logs
        # With steps_per_execution a call speaks of several batches.
        self._batches += batch + 1 - self._in_epoch
        self._in_epoch = batch + 1
        epoch = self._at[0]
        self._at = (epoch, self._skipped + self._in_epoch)
        ends = self._in_epoch == (self.params or {}).get("steps")
        self._go_on((epoch + 1, 0) if ends else self._at)
        if self.every != "epoch" and self._batches - self._saved_at >= int(self.every):
            self._saved_at = self._batches
            self._save((epoch + 1, 0) if ends else self._at)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves, if it is to be done by epochs."""
        del logs
        self._at, self._in_epoch, self._skipped = (epoch + 1, 0), 0, 0
        self._go_on(self._at)
        if self.every == "epoch":
            self._save(self._at)
        if epoch + 1 == (self.params or {}).get("epochs"):
            self._finish(self._at)  # before averages take the weights' place

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Ends the checkpoint that is being written."""
        del logs
        self._finish(self._at)

    # Parts

    def _require_same(self, model: Any) -> None:
        """Forgets what was saved of another model."""
        if self._model_of_last is not model:
            self._model_of_last, self.last = model, None

    def _save(self, at: tuple[int, int]) -> None:
        step = _steps(self.model)
        if self._running is not None or (self.last is not None and self.last.step == step):
            return
        began = time.perf_counter()
        path = self.folder.at(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        increment = self.last is not None and self._made % self.full_every
        if self.background and not increment:
            self._running = BackgroundSave(self.model, path, self.share)
            self.blocked = time.perf_counter() - began
            return
        base = self.last.path if increment and self.last else None
        self.last = saving.save(
            self.model,
            path,
            base=base,
            metadata=self.metadata,
            epoch=at[0],
            batch=at[1],
            overwrite=True,
        )
        self.blocked = time.perf_counter() - began
        self._clean()

    def _go_on(self, at: tuple[int, int]) -> None:
        if self._running is not None and self._running.ready:
            self._finish(at)

    def _finish(self, at: tuple[int, int]) -> None:
        if self._running is None:
            return
        running, self._running = self._running, None
        began = time.perf_counter()
        path = self.folder.at(_steps(self.model))  # of the step that it is now
        self.last = running.finish(path, self.metadata, *at, overwrite=True)
        self.blocked += time.perf_counter() - began
        self._clean()

    def _clean(self) -> None:
        self._made += 1
        if self.keep is not None:
            self.folder.keep(self.keep)


def _has_more(of: Callable[[int], Any], epoch: int, batch: int) -> bool:
    """Whether an epoch has more batches."""
    count = int(of(epoch).cardinality())
    if count >= 0:
        return count > batch
    # A dataset of its own: one that was looked into may be shuffled otherwise next time.
    return next(iter(of(epoch).skip(batch).take(1)), None) is not None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _steps(model: Any) -> int:
    return int(model.optimizer.iterations)


def _joined(histories: list[Any]) -> keras.callbacks.History:
    """The histories of several `fit`s as one."""
    whole = keras.callbacks.History()
    whole.epoch, whole.history = [], {}
    for one in histories:
        whole.epoch += one.epoch
        for name, values in one.history.items():
            whole.history.setdefault(name, []).extend(values)
    return whole
