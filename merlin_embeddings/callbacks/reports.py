"""What callbacks have in common that write scalars for TensorBoard now and then."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

# What tf.summary.scalar says of a number; that function asks for TensorBoard to be installed.
_SCALAR = tf.compat.v1.SummaryMetadata(
    plugin_data=tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
)


class Reports(keras.callbacks.Callback):
    """Reports after epochs or batches; subclasses say what.

    Args:
        log_dir: folder of event files; this callback's are in `log_dir/tables`.
        update_freq: "epoch", "batch", or a number of batches.

    Raises:
        ValueError: another `update_freq`.
    """

    def __init__(self, log_dir: str | os.PathLike, update_freq: str | int = "epoch") -> None:
        super().__init__()
        if update_freq not in ("epoch", "batch") and (
            not isinstance(update_freq, int) or update_freq < 1
        ):
            raise ValueError(
                f"{type(self).__name__}: update_freq={update_freq!r}; it must be 'epoch', 'batch' "
                "or the number of batches from one report to the next"
            )
        self.log_dir = os.fspath(log_dir)
        self.update_freq = update_freq
        self._latest: dict[str, float] = {}
        self._writer: Any = None
        self._batches = self._in_epoch = self._reported = 0

    @property
    def latest(self) -> Mapping[str, float]:
        """The scalars of the last report by name."""
        return dict(self._latest)

    def scalars(self) -> dict[str, float]:
        """What there is to report, by name."""
        raise NotImplementedError

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Opens the event file."""
        del logs
        self._batches = self._in_epoch = self._reported = 0
        self._writer = tf.summary.create_file_writer(os.path.join(self.log_dir, "tables"))

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Reports where it is time to."""
        del logs
        # With steps_per_execution a call speaks of several batches.
        self._in_epoch = batch + 1
        if self.update_freq == "epoch":
            return
        number = self._batches + self._in_epoch
        wait = 1 if self.update_freq == "batch" else int(self.update_freq)
        if number - self._reported >= wait:
            self._reported = number
            self._report(number)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Reports, if it is to be done by epochs."""
        del logs
        self._batches += self._in_epoch
        self._in_epoch = 0
        if self.update_freq == "epoch":
            self._report(epoch)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Closes the event file."""
        del logs
        self._writer.close()

    def _report(self, step: int) -> None:
        self._latest = self.scalars()
        with self._writer.as_default(step):
            for name, value in self._latest.items():
                tf.summary.write(name, tf.constant(value), metadata=_SCALAR)
        self._writer.flush()
