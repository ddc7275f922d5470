"""Will this user like this film? DLRM and DCN-v2 on MovieLens-100k.

    python examples/movielens.py                                  # DLRM with Adam
    python examples/movielens.py --model dcn --optimizer adagrad
    python examples/movielens.py --paired                         # the same weights on both sides

NVTabular turns the ratings into ids and numbers. The same model is trained on them with
`merlin_embeddings` and with `keras.layers.Embedding`, for three seeds each. It is then saved and
loaded again, as `.keras` and as a checkpoint (it stays in the output folder), and a fresh process
that loads workflow and model serves raw ratings. The exit code is 0 when the quality holds and all
predictions agree.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import movielens_data as data
import numpy as np
import tensorflow as tf
from movielens_models import MODELS
from movielens_report import EpochBar, console, picture, progress, table
from movielens_saving import reloaded, restored, served
from movielens_training import OPTIMIZERS, Experiment, Run, copy_weights, create, fit, predict
from movielens_workflow import prepare

LEAST_AUC = {"random": 0.78, "time": 0.68}
LEAST_GAIN = -0.005  # our mean AUC minus Keras's: three seeds of SGD differ by this much
MOST_PAIRED_DIFFERENCE = 0.002


def arguments(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, default="dlrm")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, help="adam unless --paired (sgd)")
    parser.add_argument("--split", choices=LEAST_AUC, default="random")
    parser.add_argument("--paired", action="store_true", help="both sides start from equal weights")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=15, help="at most, unless --paired")
    parser.add_argument("--cache", type=Path, default=data.CACHE, help="folder of the ratings")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "output")
    options = parser.parse_args(argv)
    if options.paired and options.optimizer not in (None, "sgd"):
        parser.error("--paired compares with sgd: other rules of Keras treat tables differently.")
    options.optimizer = options.optimizer or ("sgd" if options.paired else "adam")
    return options


def train_both(experiment: Experiment, seeds, paired: bool) -> list[Run]:
    """A run with each kind of embeddings for each seed, on the same batches in the same order."""
    runs = []
    with progress() as bars:
        for seed in seeds:
            models = {kind: create(experiment, kind, seed) for kind in ("keras", "merlin")}
            if paired:
                copy_weights(models["keras"], models["merlin"])
            for kind, model in models.items():
                bar = EpochBar(bars, kind, seed, experiment.epochs)
                runs.append(fit(experiment, kind, seed, model, [bar]))
    return runs


def check_saving(model, ratings, raw, folder: Path, checkpoint: Path) -> list[str]:
    """What went wrong on the way to disk and back; [] if nothing did. The checkpoint stays."""
    expected = predict(model, ratings, "test")
    faults = []
    for way, predictions in {
        "saved as .keras and loaded": reloaded(model, ratings, folder),
        "saved as a checkpoint and loaded": restored(model, ratings, checkpoint),
        "served raw ratings by a fresh process": served(model, ratings, raw, folder),
    }.items():
        difference = np.abs(predictions - expected).max()
        console.print(f"{way}: largest difference of a prediction {difference:.1e}")
        if not difference < 1e-6:
            faults.append(f"Predictions changed by {difference:.1e} once {way}.")
    return faults


def check_quality(runs: list[Run], least_auc: float) -> list[str]:
    """Which bars our AUC misses."""
    ours, theirs = (
        np.mean([run.test_auc for run in runs if run.embeddings == kind])
        for kind in ("merlin", "keras")
    )
    faults = []
    if not ours >= least_auc:
        faults.append(f"The test AUC {ours:.4f} is below {least_auc}.")
    if not ours - theirs >= LEAST_GAIN:
        faults.append(f"The test AUC {ours:.4f} is below Keras's {theirs:.4f}.")
    return faults


def check_pairs(runs: list[Run]) -> list[str]:
    """Which seeds part ways although both sides started from equal weights."""
    faults = []
    for keras_run, run in zip(runs[::2], runs[1::2], strict=True):
        difference = abs(run.test_auc - keras_run.test_auc)
        console.print(f"seed {run.seed}: |difference of test AUC| {difference:.6f}")
        if not difference < MOST_PAIRED_DIFFERENCE:
            faults.append(
                f"Seed {run.seed}: the test AUCs of equal starts differ by {difference:.4f}, "
                f"{MOST_PAIRED_DIFFERENCE} or more."
            )
    return faults


def main(argv=None) -> int:
    options = arguments(argv)
    tf.get_logger().setLevel("ERROR")  # many models predict: each is traced, and that is fine
    try:
        ratings = data.load(options.cache)
    except data.FetchError as error:
        print(error, file=sys.stderr)
        return 2
    parts = data.split(ratings, options.split)
    with tempfile.TemporaryDirectory() as folder:
        return compare(options, parts, Path(folder))


def compare(options: argparse.Namespace, parts: dict, folder: Path) -> int:
    """Prepares, trains, reports, checks; the exit code."""
    experiment = Experiment(
        prepare(parts, folder),
        model=options.model,
        optimizer=options.optimizer,
        epochs=options.epochs,
        patience=None if options.paired else 3,
    )
    runs = train_both(experiment, options.seeds, options.paired)

    title = f"{options.model} with {options.optimizer} on the {options.split} split"
    console.print(table(runs, title))
    path = options.output / f"{options.model}-{options.optimizer}-{options.split}.png"
    picture(runs, title, path)
    console.print(f"learning curves: {path}")

    faults = check_pairs(runs) if options.paired else check_quality(runs, LEAST_AUC[options.split])
    checkpoint = options.output / "checkpoint"
    faults += check_saving(runs[-1].model, experiment.ratings, parts["test"], folder, checkpoint)
    console.print(f"checkpoint: {checkpoint}")
    for fault in faults:
        console.print(f"[red]{fault}[/red]")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
