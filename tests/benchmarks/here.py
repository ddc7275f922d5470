"""A peer's worker in this process, which has TensorFlow already: a new one takes ten seconds.

The pipes of real workers have tests of their own.
"""

import importlib
import json

import pytest
import worker
import workers


class Here(workers.Worker):
    """Answers as the process of `workers.Worker` does; requests and replies go through JSON."""

    def __post_init__(self):
        self.replies = []
        self.send("start", adapter=self.peer.adapter, threads=self.threads)

    def send(self, do, **arguments):
        arguments = json.loads(json.dumps(arguments))
        try:
            if do == "start":
                self.worker = worker.Worker(**arguments)
                reply = {"value": self.worker.versions()}
            else:
                reply = {"value": getattr(self.worker, do)(**arguments)}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        self.replies.append(json.loads(json.dumps(reply)))

    def receive(self):
        reply = self.replies.pop(0)
        if "error" in reply:
            raise workers.PeerError(reply["error"])
        return reply["value"]

    def close(self, patience=20):
        del patience
        self.worker = None


@pytest.fixture
def workers_here(monkeypatch):
    """Has a quick benchmark start its workers here."""
    monkeypatch.setenv("QUICK", "1")
    monkeypatch.setattr(worker, "FIRST_PASS_SECONDS", 0.1)
    # It takes long where pytest has much in memory.
    monkeypatch.setattr(worker.gc, "collect", lambda: 0)
    monkeypatch.setattr(workers, "Worker", Here)
    # TensorFlow may have started its threads in a test before.
    runtime = importlib.import_module("adapters.tensorflow_runtime")
    monkeypatch.setattr(runtime, "configure", lambda threads: None)
    return Here
