"""Ids that never stop coming: what bounded rows cost, and what each policy makes of them.

    make example-streaming                       # a few minutes on two cores
    python examples/streaming_ids.py --full      # all days, three seeds: about half an hour
    python examples/streaming_ids.py --only movielens-random --maps LFU

Three streams, one model (DCN-v2). Click logs like Criteo's, in which ids gain and lose their
popularity day by day, and MovieLens-100k by time, each gone through once: every sample is predicted
before the model learns from it, and the AUC is that of each day's predictions. MovieLens in random
order is trained by epochs and tested on a fifth; which map is best is chosen on a part of its own,
before the test. Tables get a tenth of the rows that their ids would need (a quarter in random
order).

"Gap closed" is where a map stands between ids modulo rows (0%) and a static oracle (100%), which
has seen all of the stream beforehand and gives the ids that come most often a row each; the rest
share one. A minus is a loss: worse than modulo.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import movielens_data
import numpy as np
import streaming_data
import tensorflow as tf
from auc import auc
from rich.console import Console
from streaming_data import Stream
from streaming_maps import TASKS, Contender, Task, contenders
from streaming_models import Days, dcn, train_epochs, train_once
from streaming_report import Outcome, Run, chosen, losses, picture, table
from tensorflow import keras

FEW = ("half-life", "LRU, admitted")


def arguments(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=TASKS, action="append", help="some of the streams")
    parser.add_argument("--maps", nargs="+", help="those whose names have one of these, only")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="all days, three seeds")
    size.add_argument("--quick", action="store_true", help="the first days, two policies")
    parser.add_argument("--seeds", type=int, nargs="+", help="0, or with --full 0 1 2")
    parser.add_argument("--cache", type=Path, default=movielens_data.CACHE, help="of the ratings")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output")
    options = parser.parse_args(argv)
    options.seeds = options.seeds or ([0, 1, 2] if options.full else [0])
    if options.maps is None and options.quick:
        options.maps = FEW
    return options


def stream_of(name: str, options: argparse.Namespace) -> Stream:
    if name == "clicks":
        stream = streaming_data.click_logs()
        return stream if options.full else stream.first(3 if options.quick else 6)
    by = name.removeprefix("movielens-")
    stream = streaming_data.movielens(options.cache, by)
    return stream.first(40) if options.quick and by == "time" else stream


def day_aucs(stream: Stream, scores: np.ndarray) -> tuple[float, list[float]]:
    """The mean, each day weighted by its samples, without the first sixth; and each day's."""
    days = [
        auc(labels, said) if 0 < labels.sum() < len(labels) else np.nan
        for labels, said in stream.by_day(scores)
    ]
    weights = np.diff(stream.days) * ~np.isnan(days)
    weights[: len(days) // 6] = 0  # the model has just begun
    return float(np.average(np.nan_to_num(days), weights=weights)), days


def run(task: Task, contender: Contender, columns: list[str], seed: int, epochs: int) -> Run:
    """Trains with one id map.

    Args:
        task: how.
        contender: the map and what it sees.
        columns: those with an open id space.
        seed: of the model.
        epochs: at most so many, where the task has some.
    """
    start, stream = time.perf_counter(), contender.stream
    model = dcn(stream, contender.ids, task.dim, task.dropout, seed)
    tables = [model.get_layer("tables").tables[name] for name in columns]

    def begins(day: int, logs=None) -> None:
        if contender.thinks_in_epochs:
            for moving in tables:
                moving.ids.set_epoch(day)

    valid = None
    if task.epochs:
        watch = keras.callbacks.LambdaCallback(on_epoch_begin=begins)
        done = train_epochs(model, stream, task.batch, min(epochs, task.epochs), [watch])
        reached, valid, days = done.test, done.valid, done.by_epoch
    else:
        scores = train_once(model, stream, task.batch, [Days(stream, task.batch, begins)])
        reached, days = day_aucs(stream, scores)
    size = sum(one.rows for one in tables), sum(map(bytes_of, tables))
    return Run(reached, valid, days, *size, known_share(tables), time.perf_counter() - start)


def bytes_of(one) -> int:
    """Of a table: vectors, what the optimizer keeps for them, what the id map remembers."""
    variables = [one.variable, *(slot.variable for slot in one.slots.values())]
    if hasattr(one, "capacity"):
        variables += one.ids.variables
    return sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in variables)


def known_share(tables: list) -> float | None:
    """The share of lookups that found a row of their own; None where no map counts."""
    counted = [one.ids.statistics() for one in tables if hasattr(one, "capacity")]
    looked_up = sum(int(each["looked_up"]) for each in counted)
    return sum(int(each["hits"]) for each in counted) / looked_up if looked_up else None


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
        done[task.name] = outcomes = []
        for name, contender in contenders(task, stream, options.maps).items():
            epochs = 3 if options.quick else task.epochs
            runs = [
                run(task, contender, stream.open_columns, seed, epochs) for seed in options.seeds
            ]
            outcomes.append(Outcome(name, runs))
            seconds = sum(one.seconds for one in runs)
            console.print(f"[dim]{task.name}, {name}: {seconds:.0f} s[/]")
        ids = sum(stream.distinct(column) for column in stream.open_columns)
        title = (
            f"{task.name}: {len(stream):,} samples, {ids:,} ids, {task.share:.0%} of the rows, "
            f"{len(options.seeds)} seed(s)"
        )
        console.print(table(outcomes, title))
        for line in (*chosen(outcomes), *losses(outcomes)):
            console.print(line)
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "streaming-ids.svg"
    picture(done, path)
    document = {name: [one.record() for one in outcomes] for name, outcomes in done.items()}
    figures = path.with_suffix(".json")
    figures.write_text(json.dumps(document, indent=1) + "\n")
    seconds = time.perf_counter() - start
    console.print(f"AUC by day: {path}; all figures: {figures}; {seconds:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
