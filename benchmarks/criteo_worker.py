"""The process of one competitor: a model in one endless `fit`, which pauses to be told what next.

Requests and replies are one JSON object a line, on stdin and on the standard output of the start.
A step's seconds run from the end of one batch to the end of the next, waiting for input included.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the package, if not installed
sys.path.insert(0, str(Path(__file__).resolve().parent))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import criteo_data
import criteo_profile
import numpy as np
import tensorflow as tf
from criteo_models import COMPETITORS, compiled
from tensorflow import keras

import merlin_embeddings as me


class Turns(keras.callbacks.Callback):
    """Trains as many steps as the parent asks for, then waits for its next request."""

    def __init__(self, requests, replies, test, labels):
        super().__init__()
        self.requests, self.replies = requests, replies
        self.test, self.labels = test, labels
        self.trained, self.seconds, self.left, self.trace = 0, [], 0, None

    def on_train_begin(self, logs=None):
        self.resettable = _reset_peak()
        self.reply({"steps": 0})
        self.wait()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds.append(time.perf_counter() - self.started)
        self.trained += 1
        self.left -= 1
        if self.left == 0:
            self.reply(self.traced() if self.trace else self.seconds)
            self.wait()
        self.started = time.perf_counter()

    def wait(self):
        """Answers requests until one asks for steps, or for the end."""
        for line in self.requests:
            request = json.loads(line)
            command = request.pop("do")
            if command in ("steps", "profile"):
                self.left, self.seconds = request["count"], []
                if command == "profile":
                    self.trace = tempfile.TemporaryDirectory()
                    tf.profiler.experimental.start(self.trace.name)
                self.started = time.perf_counter()
                return
            if command == "stop":
                break
            self.reply(getattr(self, command)(**request))
        self.model.stop_training = True

    def reply(self, value):
        print(json.dumps({"value": value}), file=self.replies, flush=True)

    def traced(self):
        """Stops the profiler; what it saw."""
        tf.profiler.experimental.stop()
        seconds = criteo_profile.seconds_by_op(Path(self.trace.name))
        self.trace.cleanup()
        self.trace = None
        return {
            "embeddings_share_of_ops": criteo_profile.share(seconds),
            "longest": criteo_profile.longest(seconds),
        }

    def quality(self):
        """How the model ranks the test rows after the steps so far."""
        logits = self.model.predict(self.test, verbose=0)
        probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
        return {
            "steps": self.trained,
            "auc": criteo_data.auc(self.labels, logits),
            "log_loss": criteo_data.log_loss(self.labels, probabilities),
        }

    def memory(self):
        """Resident bytes now, and at most since training began."""
        return {
            "resident_bytes": _status("VmRSS"),
            "peak_bytes": _status("VmHWM") or 1024 * resource.getrusage(resource.RUSAGE_SELF)[2],
            "peak_since": "the first step" if self.resettable else "the start of the process",
        }

    def versions(self):
        return {"tensorflow": tf.__version__, "keras": keras.__version__}


def _status(field: str) -> int | None:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return 1024 * int(found[1]) if found else None


def _reset_peak() -> bool:
    """Forgets how much memory building the model took. Not every kernel allows it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def main(name: str, folder: str, dim: str, batch: str, seed: str, learning_rate: str) -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        tf.get_logger().setLevel("ERROR")
        dataset = criteo_data.load(folder)
        schema = dataset.schema
        train = me.data.batches(dataset.train, schema, batch_size=int(batch)).repeat()
        test = me.data.batches(dataset.test, schema, batch_size=int(batch))
        labels = np.concatenate([y.numpy() for _, y in test])
        model = compiled(name, schema, int(dim), int(seed), float(learning_rate))
        turns = Turns(sys.stdin, replies, test.map(lambda x, y: x), labels)
        model.fit(train, steps_per_epoch=sys.maxsize, shuffle=False, verbose=0, callbacks=[turns])
    except Exception as error:  # the parent decides what a competitor's failure means
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"[:400]
        print(json.dumps({"error": message}), file=replies, flush=True)


if __name__ == "__main__":
    assert sys.argv[1] in COMPETITORS
    main(*sys.argv[1:])
