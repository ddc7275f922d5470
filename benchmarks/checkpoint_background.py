"""What a checkpoint in the background costs the steps beside it.

    python benchmarks/checkpoint_background.py --gib 1 --folder /on/the/disk

One table (dim 64, Adagrad), half of the bytes vectors, half accumulators; batches of 8,192 rows,
uniform ids. Steps are timed in turns, with a checkpoint being written and without, so that whatever
else the machine does meets both.
"""

import argparse
import shutil
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.saving.background import BackgroundSave

DIM, BATCH = 64, 8192


def model_of(rows: int) -> keras.Model:
    symbol = keras.Input((), dtype="int64")
    vectors = me.layers.Embedding(rows, DIM, combiner="sum", name="item")(symbol)
    model = keras.Model(symbol, keras.layers.Dense(1)(vectors))
    model.compile(me.optimizers.Adagrad(0.05), "mse")
    return model


def measured(step, seconds: float, until=lambda: False) -> list[float]:
    """The times of steps, for so long, or until something has happened."""
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end and not until():
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path("build/checkpoint"))
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = int(options.gib * 2**30 / (8 * DIM))
    model, rng = model_of(rows), np.random.default_rng(0)
    batches = [tf.constant(rng.integers(0, rows, BATCH)) for _ in range(64)]
    target, number = tf.ones((BATCH, 1)), [0]

    def step() -> None:
        number[0] += 1
        model.train_on_batch(batches[number[0] % len(batches)], target)

    measured(step, 2)
    plain, beside, blocked = [], [], []
    for turn in range(options.rounds):
        plain += measured(step, 3)
        began = time.perf_counter()
        running = BackgroundSave(model, options.folder / f"step-{turn}", options.share)
        wait = time.perf_counter() - began
        beside += measured(step, 600, lambda running=running: running.ready)
        took = time.perf_counter() - began
        began = time.perf_counter()
        saved = running.finish()
        blocked.append((wait, time.perf_counter() - began, saved.rows["item"], took))
        shutil.rmtree(options.folder)
    at = [
        f"{1000 * np.median(times):.2f} ms, p99 {1000 * np.quantile(times, 0.99):.2f}"
        for times in (plain, beside)
    ]
    print(
        f"step alone: {at[0]}\nwhile rows are written: {at[1]}, "
        f"{np.median(beside) / np.median(plain):.2f}x"
    )
    for wait, end, changed, took in blocked:
        print(
            f"waited {wait * 1000:.1f} ms at the beginning, {end * 1000:.0f} ms at the end for "
            f"{changed:,} rows that changed in {took:.1f} s"
        )


if __name__ == "__main__":
    main()
