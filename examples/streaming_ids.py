"""Ids that never stop coming: what bounded rows cost, and what each policy makes of them.

    python examples/streaming_ids.py             # about four minutes on two cores
    python examples/streaming_ids.py --quick     # about a minute
    python examples/streaming_ids.py --only movielens-random

Three streams, one model (DCN-v2). Click logs like Criteo's, in which ids gain and lose their
popularity day by day, and MovieLens-100k by time, each gone through once: every sample is predicted
before the model learns from it, and the AUC is that of each day's predictions. MovieLens in random
order is trained by epochs and tested on a fifth. Tables get a tenth of the rows that their ids
would need (a quarter in random order).

"Gap closed" is where a map stands between ids modulo rows (0%) and a static oracle (100%), which
has seen all of the stream beforehand and gives the ids that come most often a row each; the rest
share one.
"""

import argparse
import dataclasses
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import movielens_data
import numpy as np
import streaming_data
import tensorflow as tf
from auc import auc
from rich.console import Console
from streaming_data import Stream
from streaming_models import Days, dcn, train_epochs, train_once
from streaming_report import picture, table

import merlin_embeddings as me

FULL, MODULO, ORACLE = "own rows", "modulo", "static oracle"
FIRST_ROWS = 16  # of a dynamic table


@dataclass(frozen=True)
class Task:
    """A stream, the share of rows its tables get, and how it is trained."""

    name: str
    share: float
    dim: int
    batch: int
    learning_rate: float = 0.3
    dropout: float = 0.0
    epochs: int = 0  # 0: once through, in the order of time


TASKS = {
    "clicks": Task("Click logs like Criteo's", 0.1, dim=8, batch=1024),
    "movielens-time": Task("MovieLens-100k by time", 0.1, dim=8, batch=128),
    "movielens-random": Task(
        "MovieLens-100k in random order", 0.25, dim=16, batch=512, dropout=0.3, epochs=20
    ),
}


@dataclass(frozen=True)
class Run:
    """What came of one map."""

    name: str
    auc: float  # of the test, or the days' mean, a day counts as its samples do
    days: list[float]  # NaN where there are only likes or none; [] when trained by epochs
    rows: int  # of the open columns' tables
    bytes: int  # of these: vectors, the optimizer's slots, the id map
    seconds: float
    known: str  # share of lookups that found a row of their own


def managed(rows: int, **arguments) -> me.ids.ManagedCollision:
    """One row is for all ids that have none of their own; the capacity is rounded up."""
    return me.ids.ManagedCollision(rows - 1, oov_rows=1, **arguments)


def policies(day: int) -> dict:
    """{name: rows of a table -> its id map}; a day has so many steps."""
    return {
        "LFU": lambda rows: managed(rows, policy="lfu"),
        "LFU, admitted at 2": lambda rows: managed(rows, policy="lfu", admit_after=2),
        "LFU, admitted by 2%": lambda rows: managed(rows, policy="lfu", admit_probability=0.02),
        "LFU, half-life 2 days": lambda rows: managed(rows, policy=me.ids.LFU(2 * day)),
        "LRU": lambda rows: managed(rows, policy="lru"),
        "epoch LRU": lambda rows: managed(rows, policy="epoch_lru"),
        "epoch LFU": lambda rows: managed(rows, policy="epoch_lfu"),
        "TTL, 1 day": lambda rows: managed(rows, policy=me.ids.TTL(day)),
        "dynamic, LFU": lambda rows: me.ids.Dynamic(
            initial=min(rows, FIRST_ROWS), max_rows=rows, when_full="lfu"
        ),
    }


def arguments(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=TASKS, action="append", help="some of the streams")
    parser.add_argument("--maps", nargs="+", help="those whose names have one of these, only")
    parser.add_argument("--quick", action="store_true", help="the first days, fewer maps")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=movielens_data.CACHE, help="of the ratings")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output")
    return parser.parse_args(argv)


def stream_of(name: str, options: argparse.Namespace) -> Stream:
    if name == "clicks":
        stream = streaming_data.click_logs()
        return stream.first(4) if options.quick else stream
    by = name.removeprefix("movielens-")
    stream = streaming_data.movielens(options.cache, by)
    return stream.first(40) if options.quick and by == "time" else stream


def contenders(task: Task, stream: Stream, options: argparse.Namespace) -> dict:
    """{name: (stream, {column: which row an id has})}."""
    ranked = stream.by_frequency()
    # As many as the maps have whose capacity is rounded up, for all.
    rows = {c: managed(max(2, int(task.share * ranked.vocabulary[c]))).rows for c in ranked.ids
            if c in stream.open_columns}  # fmt: skip
    clipped = dataclasses.replace(ranked, vocabulary={**ranked.vocabulary, **rows})
    found = {
        FULL: (ranked, {}),
        MODULO: (stream, {c: me.ids.Modulo(count) for c, count in rows.items()}),
        ORACLE: (clipped, {c: me.ids.Identity("clip") for c in rows}),
    }
    steps = -(-len(stream) // task.batch)
    for name, spec in policies(max(1, steps // (len(stream.days) - 1))).items():
        if options.quick and name not in ("LFU", "LFU, admitted by 2%", "LRU"):
            continue
        found[name] = (stream, {c: spec(count) for c, count in rows.items()})
    if options.maps:
        kept = (FULL, MODULO, ORACLE)
        found = {
            name: value
            for name, value in found.items()
            if name in kept or any(part in name for part in options.maps)
        }
    return found


def open_tables(model, stream: Stream) -> list:
    tables = model.get_layer("tables").tables
    return [tables[name] for name in stream.open_columns]


def day_aucs(stream: Stream, scores: np.ndarray) -> tuple[float, list[float]]:
    """The mean, each day weighted by its samples, without the first sixth; and each day's."""
    days = [
        auc(labels, said) if 0 < labels.sum() < len(labels) else np.nan
        for labels, said in stream.by_day(scores)
    ]
    weights = np.diff(stream.days) * ~np.isnan(days)
    weights[: len(days) // 6] = 0  # the model has just begun
    return float(np.average(np.nan_to_num(days), weights=weights)), days


def run(name: str, task: Task, streams: tuple[Stream, Stream], ids: dict, seed: int, quick: bool):
    """Trains with one id map; `streams` are as the map sees the ids, and as they are."""
    stream, original = streams
    start = time.perf_counter()
    model = dcn(stream, ids, task.dim, task.dropout, seed)
    tables = open_tables(model, original)
    if task.epochs:
        reached = train_epochs(model, stream, task.batch, 3 if quick else task.epochs)
        days = []
    else:

        def begins(day: int) -> None:
            for moving in tables:
                if isinstance(moving.config.ids, me.ids.ManagedCollision) and "epoch" in name:
                    moving.ids.set_epoch(day)

        watch = Days(stream, task.batch, begins)
        scores = train_once(model, stream, task.batch, task.learning_rate, [watch])
        reached, days = day_aucs(stream, scores)
    return Run(
        name,
        reached,
        days,
        sum(one.rows for one in tables),
        sum(map(bytes_of, tables)),
        time.perf_counter() - start,
        known_share(tables),
    )


def bytes_of(one) -> int:
    """Of a table: vectors, what the optimizer keeps for them, what the id map remembers."""
    variables = [one.variable, *(slot.variable for slot in one.slots.values())]
    if hasattr(one, "capacity"):
        variables += one.ids.variables
    return sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in variables)


def known_share(tables: list) -> str:
    counted = [one.ids.statistics() for one in tables if hasattr(one, "capacity")]
    looked_up = sum(int(each["looked_up"]) for each in counted)
    return f"{sum(int(e['hits']) for e in counted) / looked_up:.1%}" if looked_up else "-"


def main(argv=None) -> int:
    options = arguments(argv)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    tf.get_logger().setLevel("ERROR")
    start, done = time.perf_counter(), {}
    for key, task in TASKS.items():
        if options.only and key not in options.only:
            continue
        try:
            stream = stream_of(key, options)
        except movielens_data.FetchError as error:
            print(error, file=sys.stderr)
            return 2
        done[task.name] = runs = []
        for name, (seen, ids) in contenders(task, stream, options).items():
            runs.append(run(name, task, (seen, stream), ids, options.seed, options.quick))
            console.print(f"[dim]{task.name}, {name}: {runs[-1].seconds:.0f} s[/]")
        ids = sum(stream.distinct(column) for column in stream.open_columns)
        title = f"{task.name}: {len(stream):,} samples, {ids:,} ids, {task.share:.0%} of the rows"
        console.print(table(runs, title, MODULO, ORACLE))
    path = options.output / "streaming-ids.png"
    picture(done, MODULO, path)
    console.print(f"AUC by day: {path}; {time.perf_counter() - start:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
