"""Checkpoints while a model trains."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import checkpoint, saving
from merlin_embeddings.saving.background import BackgroundSave
from merlin_embeddings.saving.folder import Folder
from merlin_embeddings.saving.save import step_of


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
        ValueError: an `every`, `keep`, `full_every` or `share` that can't be; or, in `fit`, the
            folder has a checkpoint of a later step than the model's, which `resume` goes on from.

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
            **arguments: of `fit`; this callback is among `callbacks` by itself. Whatever sets
                `stop_training` ends all of it. `fit` lets callbacks begin anew each time, so that
                one that counts epochs (`EarlyStopping`) counts none where `data` is a function.

        Returns:
            The history of the epochs that were made now.

        Raises:
            ValueError: `initial_epoch`, which the checkpoint says, or `steps_per_epoch`: an epoch
                is all of `data`, say `data.take(n)`.
            TypeError: an epoch was stopped in its middle, and `data` is no `tf.data.Dataset`.
        """
        for name in ("initial_epoch", "steps_per_epoch"):
            if arguments.get(name) is not None:
                raise ValueError(
                    f"resume: {name}={arguments[name]}; where an epoch begins is what the "
                    "checkpoint says, and it is all of data: give data.take(n) for fewer batches"
                )
        found = self.restore(model)
        epoch, batch = (0, 0) if found is None else (found.epoch, found.batch)
        arguments["callbacks"] = [*_callbacks(arguments.get("callbacks"), self), self]
        of = data if callable(data) else lambda epoch: data
        histories = []
        for begin, end, skipped in _fits(epoch, batch, epochs, callable(data)):
            some = of(begin)
            if skipped:
                if not _has_more(of, begin, skipped):
                    continue
                some = some.skip(skipped)
            self._skipped = skipped
            try:
                histories.append(model.fit(some, initial_epoch=begin, epochs=end, **arguments))
            finally:
                self._skipped = 0
            if model.stop_training:
                break
        return _joined(histories)

    # Keras

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Counts from here on."""
        del logs
        self._batches = self._saved_at = self._in_epoch = 0
        self._require_same(self.model)
        newest, step = self.folder.newest(), _steps(self.model)
        if newest is not None and newest.name > self.folder.at(step).name:
            raise ValueError(
                f"Checkpoint: {newest} is of a later step than the model's, {step}: it is another "
                "training's, or this one's from there on. Go on from it by resume(), save into "
                "another folder, or remove it"
            )

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Notes which epoch it is."""
        del logs
        self._at, self._in_epoch = (epoch, self._skipped), 0

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves where it is time to."""
        del logs
        # With steps_per_execution a call speaks of several batches.
        steps = (self.params or {}).get("steps")
        # and where that isn't a divisor, of some that there aren't.
        made = batch + 1 if steps is None else min(batch + 1, steps)
        self._batches += made - self._in_epoch
        self._in_epoch = made
        epoch = self._at[0]
        self._at = (epoch, self._skipped + self._in_epoch)
        ends = made == steps
        self._go_on((epoch + 1, 0) if ends else self._at)
        if self.every != "epoch" and self._batches - self._saved_at >= int(self.every):
            self._saved_at = self._batches
            self._save((epoch + 1, 0) if ends else self._at)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Saves, if it is to be done by epochs."""
        del logs
        steps = (self.params or {}).get("steps")
        if not self.model.stop_training or steps is None or self._in_epoch >= steps:
            self._at = (epoch + 1, 0)  # or it was stopped in the middle, and stands where it did
        self._in_epoch = self._skipped = 0
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
            if self._running is not None:
                self._running.give_up()
                self._running = None

    def _save(self, at: tuple[int, int]) -> None:
        step = _steps(self.model)
        if self._running is not None or (self.last is not None and self.last.step == step):
            return
        began = time.perf_counter()
        path = self.folder.at(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        base = self._base()
        if self.background and base is None:
            self._running = BackgroundSave(self.model, path, self.share)
            self.blocked = time.perf_counter() - began
            return
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

    def _base(self) -> str | None:
        """What the next checkpoint goes on from, if it is to be an increment and that can be."""
        if self.last is None or not self._made % self.full_every:
            return None
        try:
            return str(checkpoint.Checkpoint(self.last.path).path)
        except (checkpoint.BrokenCheckpoint, FileNotFoundError):
            return None  # somebody has removed it

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


def _callbacks(given: Any, own: Any) -> list[Any]:
    """Those that `fit` was to be given, without `own`."""
    found = [given] if isinstance(given, keras.callbacks.Callback) else list(given or ())
    return [one for one in found if one is not own]


def _fits(epoch: int, batch: int, epochs: int, apart: bool) -> Iterator[tuple[int, int, int]]:
    """Which epochs [begin, end) are made by one `fit`, and how many batches it leaves out."""
    if batch:
        yield epoch, epoch + 1, batch
        epoch += 1
    if apart:
        yield from ((number, number + 1, 0) for number in range(epoch, epochs))
    elif epoch < epochs:
        yield epoch, epochs, 0


def _has_more(of: Callable[[int], Any], epoch: int, batch: int) -> bool:
    """Whether an epoch has more batches."""
    if not isinstance(of(epoch), tf.data.Dataset):
        raise TypeError(
            f"resume: the checkpoint stands at batch {batch} of epoch {epoch}, and a "
            f"{type(of(epoch)).__name__} can't begin there; give a tf.data.Dataset, or save by "
            "every='epoch'"
        )
    count = int(of(epoch).cardinality())
    if count >= 0:
        return count > batch
    # A dataset of its own: one that was looked into may be shuffled otherwise next time.
    return next(iter(of(epoch).skip(batch).take(1)), None) is not None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _steps(model: Any) -> int:
    return step_of(model.optimizer) or 0


def _joined(histories: list[Any]) -> keras.callbacks.History:
    """The histories of several `fit`s as one."""
    whole = keras.callbacks.History()
    whole.epoch, whole.history = [], {}
    for one in histories:
        whole.epoch += one.epoch
        for name, values in one.history.items():
            whole.history.setdefault(name, []).extend(values)
    return whole
