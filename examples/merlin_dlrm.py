"""merlin-models' DLRMModel on MovieLens-100k: its own tables, and ours by one argument.

    .venv-merlin/bin/python examples/merlin_dlrm.py
    .venv-merlin/bin/python examples/merlin_dlrm.py --model dcn --optimizer adam --seeds 0 1

For each seed the same model is trained three times from the same weights, on the same batches in
the same order: with merlin-models' table, with ours, and with ours and our optimizer. The exit code
is 0 when the AUCs on the test ratings agree.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import merlin_training as training
import movielens_data as data
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.progress import track
from rich.table import Table

MOST_DIFFERENCE = 0.002
console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)


@dataclass(frozen=True)
class Run:
    """A trained model's figures."""

    kind: str  # of merlin_training.KINDS
    seed: int
    auc: float
    samples_per_second: float  # of the fastest epoch


def arguments(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=training.MODELS, default="dlrm")
    parser.add_argument("--optimizer", choices=training.OPTIMIZERS, default="adam")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--cache", type=Path, default=data.CACHE, help="folder of the ratings")
    return parser.parse_args(argv)


def runs_of(options: argparse.Namespace, ratings: training.Ratings, seed: int) -> list[Run]:
    """All kinds from one start."""
    build = training.MODELS[options.model]
    runs = []
    for kind, model in training.start(ratings, build, options.optimizer, seed).items():
        seconds = training.fit(ratings, model, seed, options.epochs, options.batch_size)
        rate = len(ratings.train) / min(seconds)
        runs.append(Run(kind, seed, training.test_auc(ratings, model), rate))
    return runs


def table(runs: list[Run], title: str) -> Table:
    """AUC, its largest difference from stock's at the same seed, and speed, a row for each kind."""
    result = Table(title=title, title_justify="left")
    result.add_column("tables")
    for heading in ("test AUC", "largest difference", "samples/s in training", "x stock"):
        result.add_column(heading, justify="right")
    stock = {run.seed: run for run in runs if run.kind == "stock"}
    for kind, (name, *_) in training.KINDS.items():
        own = [run for run in runs if run.kind == kind]
        apart = max(abs(run.auc - stock[run.seed].auc) for run in own)
        speed = np.median([run.samples_per_second for run in own])
        ratio = np.median([r.samples_per_second / stock[r.seed].samples_per_second for r in own])
        result.add_row(
            name,
            f"{np.mean([run.auc for run in own]):.4f}",
            "" if kind == "stock" else f"{apart:.5f}",
            f"{speed:,.0f}",
            f"{ratio:.2f}",
        )
    return result


def faults_of(runs: list[Run]) -> list[str]:
    """Which seeds part ways although all started from equal weights."""
    stock = {run.seed: run.auc for run in runs if run.kind == "stock"}
    return [
        f"Seed {run.seed}, {training.KINDS[run.kind].title}: the test AUC {run.auc:.4f} is "
        f"{MOST_DIFFERENCE} or more away from stock's {stock[run.seed]:.4f}."
        for run in runs
        if not abs(run.auc - stock[run.seed]) < MOST_DIFFERENCE
    ]


def main(argv=None) -> int:
    options = arguments(argv)
    tf.get_logger().setLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        try:
            ratings = training.load(Path(folder), options.cache)
        except data.FetchError as error:
            print(error, file=sys.stderr)
            return 2
        runs = []
        for seed in track(options.seeds, "training", console=console):
            runs += runs_of(options, ratings, seed)
    title = f"{options.model} of merlin-models with {options.optimizer} on MovieLens-100k"
    console.print(table(runs, title))
    faults = faults_of(runs)
    for fault in faults:
        console.print(f"[red]{fault}[/red]")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
