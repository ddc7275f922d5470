"""One way to save and load, measured in a process of its own; prints JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

DIM = 64
BLOCK = 16 << 20


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def sync(path: Path) -> None:
    """Has a file, or all files of a folder, reach the disk."""
    for one in [path, *path.rglob("*")]:
        descriptor = os.open(one, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def drop(path: Path) -> None:
    """Has the next read come from the disk."""
    for one in [path, *path.rglob("*")]:
        if one.is_file():
            descriptor = os.open(one, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def memory() -> tuple[int, int]:
    """Bytes resident now, and at most since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return tuple(int(status.split(f"{name}:")[1].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))


def measured(work: Callable[[], object]) -> tuple[float, int]:
    """Seconds, and bytes of memory beyond what there was."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory()[0]
    seconds = timed(work)
    return seconds, max(memory()[1] - before, 0)


def plain_write(path: Path, length: int) -> None:
    block = np.random.default_rng(0).bytes(BLOCK)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for at in range(0, length, BLOCK):
        os.pwrite(descriptor, block[: length - at], at)
    os.fsync(descriptor)
    os.close(descriptor)


def plain_read(path: Path) -> None:
    descriptor, buffer, at = os.open(path, os.O_RDONLY), bytearray(BLOCK), 0
    while got := os.preadv(descriptor, [buffer], at):
        at += got
    os.close(descriptor)


def plain_copy(path: Path, to: Path) -> None:
    source, buffer, at = os.open(path, os.O_RDONLY), bytearray(BLOCK), 0
    target = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    while got := os.preadv(source, [buffer], at):
        os.pwrite(target, memoryview(buffer)[:got], at)
        at += got
    os.fsync(target)
    os.close(source)
    os.close(target)


def ours(folder: Path, rows: int, rounds: int) -> dict:
    import tensorflow as tf

    import merlin_embeddings as me

    ids = tf.keras.Input((), dtype="int64")
    layer = me.layers.Embedding(rows, DIM, name="table", embeddings_initializer="uniform")
    model = tf.keras.Model(ids, layer(ids))
    model.compile(optimizer=me.optimizers.Adagrad(0.1), loss="mse")

    def train(some: np.ndarray) -> None:
        model.train_on_batch(some, np.zeros((len(some), DIM), np.float32))

    train(np.arange(1000))
    found: dict[str, list] = {name: [] for name in ("plain_write", "save", "plain_read", "load")}
    found |= {"plain_copy": [], "reshard": [], "increment": []}
    peaks: dict[str, list] = {"save": [], "load": []}
    size, plain = 2 * rows * DIM * 4, folder / "plain"
    some = np.random.default_rng(1).integers(0, rows, 1000)
    sample = layer(some).numpy()

    def with_peak(what: str, work: Callable[[], object]) -> None:
        seconds, peak = measured(work)
        found[what].append(seconds)
        peaks[what].append(peak)

    for number in range(rounds):
        path = folder / f"step-{number}"
        found["plain_write"].append(timed(partial(plain_write, plain, size)))
        with_peak("save", partial(me.save, model, path))
        drop(folder)
        found["plain_read"].append(timed(partial(plain_read, plain)))
        with_peak("load", partial(me.load, model, path))
        np.testing.assert_array_equal(layer(some).numpy(), sample)
        if number < rounds - 1:
            shutil.rmtree(path)
    rng = np.random.default_rng(0)
    for number in range(3):
        train(rng.choice(rows, rows // 100, replace=False))
        base, path = path, folder / f"increment-{number}"
        found["increment"].append(timed(partial(me.save, model, path, base=base)))
    found["chain"] = [timed(partial(me.load, model, path))]
    eight, three = folder / "eight", folder / "three"
    me.checkpoint.reshard(folder / f"step-{rounds - 1}", eight, 8)
    for number in range(3):
        shutil.rmtree(folder / f"increment-{number}")
    shutil.rmtree(folder / f"step-{rounds - 1}")
    drop(folder)
    found["plain_copy"].append(timed(lambda: plain_copy(folder / "plain", folder / "copy")))
    (folder / "copy").unlink()
    drop(folder)
    found["reshard"].append(timed(lambda: me.checkpoint.reshard(eight, three, 3)))
    return {
        **found,
        "save_memory": max(peaks["save"]),
        "load_memory": max(peaks["load"]),
        "bytes": size,
    }


def saved_and_loaded(folder: Path, save: Callable, load: Callable) -> dict:
    def whole() -> None:
        save()
        sync(folder)

    seconds, peak = measured(whole)
    drop(folder)
    load_seconds, load_peak = measured(load)
    return {
        "save": [seconds],
        "load": [load_seconds],
        "save_memory": peak,
        "load_memory": load_peak,
    }


def arrays(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((rows, DIM), dtype=np.float32) for _ in range(2)]


def with_numpy(folder: Path, rows: int, rounds: int) -> dict:
    both = arrays(rows)

    def save() -> None:
        for name, array in enumerate(both):
            np.save(folder / f"{name}.npy", array)

    def load() -> None:
        for name, array in enumerate(both):
            array[:] = np.load(folder / f"{name}.npy")

    return saved_and_loaded(folder, save, load)


def with_torch(folder: Path, rows: int, rounds: int) -> dict:
    import torch

    both = {str(name): torch.from_numpy(array) for name, array in enumerate(arrays(rows))}

    def load() -> None:
        for name, tensor in torch.load(folder / "a.pt", weights_only=True).items():
            both[name].copy_(tensor)

    return saved_and_loaded(folder, lambda: torch.save(both, folder / "a.pt"), load)


def with_tensorflow(folder: Path, rows: int, rounds: int) -> dict:
    import tensorflow as tf

    both = [tf.Variable(array) for array in arrays(rows)]
    saver = tf.train.Checkpoint(vectors=both[0], accumulator=both[1])
    path = str(folder / "a")
    return saved_and_loaded(
        folder, lambda: saver.write(path), lambda: saver.read(path).assert_consumed()
    )


def with_keras(folder: Path, rows: int, rounds: int) -> dict:
    import tensorflow as tf

    ids = tf.keras.Input((), dtype="int64")
    # What an optimizer keeps is in no weights file: a second table takes its place.
    both = [tf.keras.layers.Embedding(rows, DIM)(ids) for _ in range(2)]
    model, path = tf.keras.Model(ids, both), folder / "a.weights.h5"
    return saved_and_loaded(
        folder, lambda: model.save_weights(path), lambda: model.load_weights(path)
    )


WAYS = {
    "ours": ours,
    "numpy": with_numpy,
    "torch.save": with_torch,
    "tf.train.Checkpoint": with_tensorflow,
    "Keras weights": with_keras,
}

if __name__ == "__main__":
    what, folder, gib, rounds = sys.argv[1:]
    rows = int(float(gib) * 2**30) // (2 * DIM * 4)
    print(json.dumps(WAYS[what](Path(folder), rows, int(rounds))))
