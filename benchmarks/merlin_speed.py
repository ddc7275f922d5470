#!/usr/bin/env python3
"""merlin-models' DLRMModel with our tables and with its own: samples/s of plain `fit`.

    .venv-merlin/bin/python benchmarks/merlin_speed.py                    all cases, some minutes
    QUICK=1 .venv-merlin/bin/python benchmarks/merlin_speed.py            one small case
    .venv-merlin/bin/python benchmarks/merlin_speed.py --cases 100k-16k --json results.json

All models of a case are in one process, begin with the same weights, and take turns on the same
batches, which are in memory: what is measured is a step. Its time is the median of the turns'. The
processor's time of a step, of all threads, is beside it: it says more on a machine that has other
things to do.

Stock runs in two ways: `optimizer="adagrad"`, which in merlin-models is the legacy optimizer, and
Keras 2's new one. Ours, `mem.Embeddings`, runs with our optimizer, and with both of those;
"a lookup a table" is merlin-models' `Embeddings` with our tables. "no tables" has one trained
vector a column in their place: what a step costs without lookups and updates, the ceiling.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import merlin.models.tf as mm
import numpy as np
import tensorflow as tf
from criteo_data.zipf import Zipf
from machine import CpuUsage, describe
from merlin.schema import ColumnSchema, Schema, Tags
from rich.console import Console
from rich.table import Table
from tensorflow import keras

import merlin_embeddings as me
import merlin_embeddings.merlin as mem

LEARNING_RATE = 0.01
EXPONENT = 1.1  # of the ids' Zipf law, as in criteo_data
SEED = 20
BATCHES = 8  # different ones, again and again


@dataclass(frozen=True)
class Case:
    """Tables, sizes of the dense part, and a batch size.

    `rows` of each table; `numbers`: how many continuous columns; `bottom` ends with the dim.
    """

    rows: tuple[int, ...]
    numbers: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    batch: int

    @property
    def dim(self) -> int:
        return self.bottom[-1]


# The layers of merlin-models' own examples of DLRM.
BOTTOM, TOP = (128, 64), (128, 64, 32)
# user, film, genre, gender, occupation, zip, hour, weekday, age group
MOVIELENS = (944, 1683, 22, 5, 24, 798, 27, 10, 64)
CASES = {
    "100k-4k": Case((100_000,) * 26, 13, BOTTOM, TOP, 4096),
    "100k-16k": Case((100_000,) * 26, 13, BOTTOM, TOP, 16384),
    # DLRM's layers for the Kaggle data, as criteo_like.py has them
    "100k-4k-kaggle": Case((100_000,) * 26, 13, (512, 256, 64), (512, 256), 4096),
    "100k-16k-kaggle": Case((100_000,) * 26, 13, (512, 256, 64), (512, 256), 16384),
    "small-512": Case(MOVIELENS, 2, (64, 16), (128, 64), 512),
    "small-4k": Case(MOVIELENS, 2, (64, 16), (128, 64), 4096),
}
QUICK = {"quick": Case((2_000,) * 4, 2, (16,), (16,), 256)}


@keras.utils.register_keras_serializable(package="merlin_embeddings_benchmarks")
class NoTable(mm.EmbeddingTable):
    """The same trained vector for every id."""

    def build(self, input_shapes):
        self.vector = self.add_weight("vector", (self.dim,), initializer="uniform")
        keras.layers.Layer.build(self, input_shapes)

    def _maybe_build(self, inputs):
        return keras.layers.Layer._maybe_build(self, inputs)

    def call(self, inputs, **kwargs):
        return {
            name: tf.broadcast_to(self.vector, [tf.shape(ids)[0], self.dim])
            for name, ids in inputs.items()
        }


def with_tables(table: type) -> Callable:
    """merlin-models' own block, of tables of a class."""
    return functools.partial(mm.Embeddings, table_cls=table)


@dataclass(frozen=True)
class Competitor:
    title: str
    embeddings: Callable
    optimizer: Callable[[], object]


COMPETITORS = {
    "ours": Competitor("ours", mem.Embeddings, lambda: me.optimizers.Adagrad(LEARNING_RATE)),
    "ours-apart": Competitor(
        "ours, a lookup a table",
        with_tables(mem.EmbeddingTable),
        lambda: me.optimizers.Adagrad(LEARNING_RATE),
    ),
    "ours-legacy": Competitor(
        "ours, stock legacy Adagrad",
        mem.Embeddings,
        lambda: keras.optimizers.legacy.Adagrad(LEARNING_RATE),
    ),
    "ours-new": Competitor(
        "ours, stock new Adagrad",
        mem.Embeddings,
        lambda: keras.optimizers.Adagrad(LEARNING_RATE, jit_compile=False),
    ),
    "stock-legacy": Competitor(
        "stock, legacy Adagrad",
        mm.Embeddings,
        lambda: keras.optimizers.legacy.Adagrad(LEARNING_RATE),
    ),
    "stock-new": Competitor(
        "stock, new Adagrad",
        mm.Embeddings,
        lambda: keras.optimizers.Adagrad(LEARNING_RATE, jit_compile=False),
    ),
    "none": Competitor(
        "no tables", with_tables(NoTable), lambda: keras.optimizers.legacy.Adagrad(LEARNING_RATE)
    ),
}
STOCK = ("stock-legacy", "stock-new")


def schema_of(case: Case) -> Schema:
    """C0, C1, ... [B] int64, I0, I1, ... [B] float32, and the target."""
    categorical = [
        ColumnSchema(f"C{i}", [Tags.CATEGORICAL], {"domain": {"min": 0, "max": rows - 1}}, np.int64)
        for i, rows in enumerate(case.rows)
    ]
    numbers = [
        ColumnSchema(f"I{i}", [Tags.CONTINUOUS], dtype=np.float32) for i in range(case.numbers)
    ]
    target = ColumnSchema("click", [Tags.TARGET, Tags.BINARY_CLASSIFICATION], dtype=np.int64)
    return Schema([*categorical, *numbers, target])


def batches_of(case: Case) -> tf.data.Dataset:
    """The same batches for ever, made beforehand."""
    random, count = np.random.default_rng(SEED), BATCHES * case.batch
    x = {f"C{i}": Zipf(rows, EXPONENT).draw(random, count) for i, rows in enumerate(case.rows)}
    x |= {f"I{i}": random.normal(size=count).astype(np.float32) for i in range(case.numbers)}
    y = random.integers(2, size=(count, 1))
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(case.batch, drop_remainder=True)
    return data.cache().repeat().prefetch(2)


def compiled(competitor: Competitor, case: Case):
    """The model; its dense weights depend on the seed alone."""
    keras.utils.set_random_seed(SEED)
    schema = schema_of(case)
    categorical = schema.select_by_tag(Tags.CATEGORICAL)
    model = mm.DLRMModel(
        schema,
        embeddings=competitor.embeddings(categorical, dim=case.dim),
        bottom_block=mm.MLPBlock(list(case.bottom)),
        top_block=mm.MLPBlock(list(case.top)),
        prediction_tasks=mm.BinaryOutput("click", default_metrics_fn=tuple),
    )
    model.compile(competitor.optimizer(), metrics=[])
    return model


class Stopwatch(keras.callbacks.Callback):
    """Seconds of each step, from the end of a batch to the end of the next."""

    def on_train_begin(self, logs=None):
        self.seconds, self.last = [], None

    def on_train_batch_end(self, batch, logs=None):
        now = time.perf_counter()
        if self.last is not None:
            self.seconds.append(now - self.last)
        self.last = now


def measure(case: Case, names: list[str], rounds: int, steps: int) -> dict[str, dict]:
    """{competitor: milliseconds of a step, samples/s, processor's milliseconds of a step}."""
    data = batches_of(case)
    models = {name: compiled(COMPETITORS[name], case) for name in names}
    turns: dict[str, list[float]] = {name: [] for name in names}
    processor: dict[str, list[float]] = {name: [] for name in names}

    def turn(name: str, count: int) -> list[float]:
        watch = Stopwatch()
        models[name].fit(data, steps_per_epoch=count, verbose=0, shuffle=False, callbacks=[watch])
        return watch.seconds

    for name in names:
        turn(name, BATCHES)
    for number in range(rounds):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            began = time.process_time()
            turns[name].append(statistics.median(turn(name, steps + 2)[1:]))
            processor[name].append((time.process_time() - began) / (steps + 2))
    return {
        name: {
            "step_ms": 1e3 * statistics.median(seconds),
            "samples_per_second": case.batch / statistics.median(seconds),
            "turns_ms": [round(1e3 * value, 3) for value in seconds],
            "processor_ms": 1e3 * statistics.median(processor[name]),
        }
        for name, seconds in turns.items()
    }


def compared(results: dict[str, dict]) -> dict[str, dict]:
    """Results with `ratio`: samples/s over those of the faster stock; above 1 is faster."""
    stock = [results[name]["samples_per_second"] for name in STOCK if name in results]
    busy = [results[name]["processor_ms"] for name in STOCK if name in results]
    for result in results.values():
        result["ratio"] = result["samples_per_second"] / max(stock) if stock else None
        result["processor_ratio"] = min(busy) / result["processor_ms"] if stock else None
    return results


def show(console: Console, name: str, results: dict[str, dict]) -> None:
    table = Table(title=f"{name}: {CASES.get(name, QUICK.get(name))}", title_justify="left")
    table.add_column("tables, optimizer")
    for heading in ("step, ms", "samples/s", "x the faster stock", "processor, ms", "x"):
        table.add_column(heading, justify="right")
    for competitor, result in results.items():
        ratio = result["ratio"]
        table.add_row(
            COMPETITORS[competitor].title,
            f"{result['step_ms']:.1f}",
            f"{result['samples_per_second']:,.0f}",
            f"{ratio:.2f}" if ratio else "-",
            f"{result['processor_ms']:.1f}",
            f"{result['processor_ratio']:.2f}" if ratio else "-",
        )
    console.print(table)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    quick = os.environ.get("QUICK", "0") not in ("", "0")
    cases = CASES | QUICK
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default=",".join(QUICK if quick else CASES))
    parser.add_argument("--only", default=",".join(COMPETITORS), help="competitors")
    parser.add_argument("--rounds", type=int, default=3 if quick else 7)
    parser.add_argument("--steps", type=int, default=6, help="timed, a turn")
    parser.add_argument("--json", type=Path, help="file to write")
    parsed = parser.parse_args(given)
    parsed.quick = quick
    parsed.cases, parsed.names = parsed.cases.split(","), parsed.only.split(",")
    for chosen, known in ((parsed.cases, cases), (parsed.names, COMPETITORS)):
        if unknown := set(chosen) - set(known):
            parser.error(f"{', '.join(sorted(unknown))}: not of {', '.join(known)}")
    return parsed


def main(given: list[str] | None = None) -> int:
    options, usage = arguments(given), CpuUsage()
    console = Console(width=None if sys.stdout.isatty() else 150)
    tf.get_logger().setLevel("ERROR")
    document = {
        "benchmark": "merlin_speed",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "quick": options.quick,
        "versions": {"tensorflow": tf.__version__, "keras": keras.__version__},
        "machine": describe(),
        "cases": [],
    }
    for name in options.cases:
        case = (CASES | QUICK)[name]
        results = compared(measure(case, options.names, options.rounds, options.steps))
        show(console, name, results)
        document["cases"].append({"name": name, **asdict(case), "results": results})
        keras.backend.clear_session()
    document["machine"]["others_cpu_percent"] = round(usage.others_percent(), 1)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
