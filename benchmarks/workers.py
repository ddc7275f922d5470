"""The parent's side of a peer: who it is, what memory it takes, its process and the pipe to it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cases import Batch, TableSet

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
GIB = 2**30
PROCESS_BYTES = int(0.6 * GIB)  # libraries and their pools
OURS = "merlin_embeddings"
LIMIT = "gather limit"
CALL = "tf.function call"
GATHER = "torch Embedding"
REFERENCES = (LIMIT, CALL, GATHER)  # measured beside the peers, but none of them


class PeerError(RuntimeError):
    """A peer could not do what was asked; the others go on."""


@dataclass(frozen=True)
class Peer:
    """A peer and the groups it takes part in.

    `copies`: tables' worth of memory that it holds, at most, once a step of the group has run and
    those of the groups before it (seen with one table of 10M rows): the table, the rule's slots,
    what the framework's allocator keeps, and the temporaries of dense updates.
    `rows_copies`: [N, D] tensors of looked-up rows that it holds at once.
    """

    name: str
    adapter: str
    copies: dict[str, float]
    rows_copies: int
    torch: bool = False

    def nbytes(self, group: str, tables: TableSet, batch: Batch, ids_bytes: int) -> int:
        looked_up = tables.tables * batch.size * batch.hotness * tables.dim * 4
        return int(
            PROCESS_BYTES
            + self.copies[group] * tables.nbytes
            + self.rows_copies * looked_up
            + 2 * ids_bytes
        )


PEERS = (
    Peer(OURS, "merlin",
         {"forward": 1, "sgd": 1, "rowwise_adagrad": 1.1, "adagrad": 2.1, "adam": 3.1}, 1),
    Peer("fbgemm TBE", "fbgemm_tbe",
         {"forward": 1, "sgd": 1, "rowwise_adagrad": 1.1, "adagrad": 2}, 1, torch=True),
    Peer("torch EmbeddingBag", "torch_embedding_bag",
         {"forward": 1, "sgd": 1.2, "adagrad": 2.2, "adam": 3.2}, 3, torch=True),
    Peer("torchrec EBC", "torchrec_collection",
         {"forward": 1.1, "sgd": 1.2, "rowwise_adagrad": 1.2, "adagrad": 2.1, "adam": 3.3}, 3,
         torch=True),
    Peer(GATHER, "torch_embedding", {"forward": 1}, 3, torch=True),
    Peer(LIMIT, "gather_limit", {"forward": 1}, 1),
    Peer(CALL, "tensorflow_call", {"forward": 0}, 1),
    Peer("tf lookup", "tensorflow_lookup", {"forward": 2.2, "sgd": 2.2, "adagrad": 2.2}, 3),
    Peer("Keras", "keras_embedding", {"forward": 2.2, "sgd": 3.3, "adagrad": 6, "adam": 7.3}, 3),
)  # fmt: skip


@dataclass
class Interpreters:
    """Python of the main environment and, where there is one, of the torch peers."""

    main: str = sys.executable
    torch: str | None = None

    def of(self, peer: Peer) -> str | None:
        return self.torch if peer.torch else self.main


@dataclass(eq=False)
class Worker:
    """One peer's process with one set of tables."""

    peer: Peer
    python: str
    threads: int
    tables: TableSet | None = None
    versions: dict | None = None
    held: int = 0

    def __post_init__(self) -> None:
        environment = dict(os.environ, OMP_NUM_THREADS=str(self.threads), PYTHONNOUSERSITE="1")
        self.process = subprocess.Popen(
            [
                self.python,
                str(HERE / "worker.py"),
                "--root",
                str(ROOT),
                "--parent",
                str(os.getpid()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if not os.environ.get("BENCH_DEBUG") else None,
            text=True,
            env=environment,
        )
        self.send("start", adapter=self.peer.adapter, threads=self.threads)

    def send(self, do: str, **arguments) -> None:
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
        except OSError as error:
            raise PeerError(f"{self.peer.name}: process has gone ({self.gone()})") from error

    def receive(self):
        line = self.process.stdout.readline()
        if not line:
            raise PeerError(f"{self.peer.name}: process has gone ({self.gone()})")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(reply["error"])
        return reply["value"]

    def started(self) -> dict:
        """Versions of what it measures, once its libraries are loaded."""
        if self.versions is None:
            self.versions = self.receive()
        return self.versions

    def resting_bytes(self) -> int:
        """Memory that it holds between groups: what it needed at most, since not all give back."""
        return max(PROCESS_BYTES, self.held)

    def ask(self, do: str, **arguments):
        self.send(do, **arguments)
        return self.receive()

    def gone(self) -> str:
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "its pipe is closed"
        return "killed: out of memory?" if code == -9 else f"exit code {code}"

    def close(self, patience: float = 20) -> None:
        with contextlib.suppress(BrokenPipeError):  # of a worker that was killed
            self.process.stdin.close()
        try:
            self.process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pool:
    """The workers alive. Each holds the tables of one set; a new set is a new process."""

    def __init__(self, interpreters: Interpreters, threads: int) -> None:
        self.interpreters = interpreters
        self.threads = threads
        self.alive: dict[tuple[str, TableSet], Worker] = {}
        self.kept: dict[str, Worker] = {}  # started, without tables
        self.versions: dict[str, dict] = {}
        self.broken: dict[tuple[str, TableSet], str] = {}  # never started; not tried again
        self.started: list[Worker] = []

    def start(self, peer: Peer) -> Worker:
        """A worker without tables; `Worker.started()` waits for it."""
        if (kept := self.kept.pop(peer.name, None)) is not None:
            return kept
        worker = Worker(peer, self.interpreters.of(peer), self.threads)
        self.started.append(worker)
        return worker

    def keep(self, worker: Worker) -> None:
        """A worker without tables that the next `start` may have."""
        self.kept[worker.peer.name] = worker

    def get(
        self, wanted: list[tuple[Peer, TableSet, int]], budget: int
    ) -> tuple[list[Worker], dict[str, str]]:
        """Workers of `wanted` with their tables built, and why the others have none.

        Each is wanted with the bytes it will need. Others stay as they are, with their tables, as
        long as all of it fits in `budget` bytes.
        """
        keys = {(peer.name, tables): peer for peer, tables, _ in wanted}
        need = sum(nbytes for _, _, nbytes in wanted)
        for key in [key for key in self.alive if key not in keys]:
            resting = sum(w.resting_bytes() for k, w in self.alive.items() if k not in keys)
            if need + resting > budget:
                self.alive.pop(key).close()
        starting = {
            key: self.start(peer)
            for key, peer in keys.items()
            if key not in self.alive and key not in self.broken
        }
        for key, worker in list(starting.items()):
            try:
                self.versions[worker.peer.name] = worker.started()
                tables = key[1]
                worker.send("build", tables=tables.tables, rows=tables.rows, dim=tables.dim)
            except PeerError as error:
                self._break(key, starting, error)
        for key, worker in list(starting.items()):
            try:
                worker.receive()
                worker.tables = key[1]
                self.alive[key] = worker
            except PeerError as error:
                self._break(key, starting, error)
        for peer, tables, nbytes in wanted:
            if (worker := self.alive.get((peer.name, tables))) is not None:
                worker.held = max(worker.held, nbytes)
        failed = {key[0]: self.broken[key] for key in keys if key in self.broken}
        return [self.alive[key] for key in keys if key in self.alive], failed

    def _break(self, key: tuple[str, TableSet], starting: dict, error: PeerError) -> None:
        self.broken[key] = str(error)
        starting.pop(key).close()

    def drop(self, worker: Worker) -> None:
        self.alive.pop((worker.peer.name, worker.tables), None)
        worker.close()

    def close_tables(self) -> None:
        """Ends the workers that hold tables."""
        for worker in self.alive.values():
            worker.close()
        self.alive.clear()

    def close(self) -> None:
        for worker in [*self.alive.values(), *self.kept.values()]:
            worker.close()
        self.alive.clear()
        self.kept.clear()

    def kill(self) -> None:
        """Ends every worker that was started, in the middle of a step if need be."""
        for worker in self.started:
            worker.close(patience=0)


def available_bytes() -> int:
    with open("/proc/meminfo") as lines:
        fields = dict(line.split(":") for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024
