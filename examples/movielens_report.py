"""What a person sees of the runs: progress, a table, a picture."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from movielens_training import Run
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tensorflow import keras

NAMES = {"merlin": "merlin_embeddings", "keras": "keras.layers.Embedding"}
COLORS = {"merlin": "#1b7837", "keras": "#762a83"}
console = Console(highlight=False, soft_wrap=True)


def progress() -> Progress:
    """A display with a row for each training run, which `EpochBar` adds."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )


class EpochBar(keras.callbacks.Callback):
    """A row of the progress display: one training run."""

    def __init__(self, bars: Progress, embeddings: str, seed: int, epochs: int):
        super().__init__()
        self.bars, self.aucs = bars, []
        self.row = bars.add_task(f"{NAMES[embeddings]}, seed {seed}", total=epochs, note="")

    def on_epoch_end(self, epoch, logs=None):
        self.aucs.append(logs["val_auc"])
        self.bars.update(self.row, advance=1, note=f"validation AUC {max(self.aucs):.4f}")

    def on_train_end(self, logs=None):
        self.bars.update(self.row, total=len(self.aucs))  # the run may have stopped early


def table(runs: list[Run], title: str) -> Table:
    """Test AUC and speed, a row for each kind of embeddings."""
    result = Table(title=title, title_justify="left")
    result.add_column("embeddings")
    result.add_column("test AUC, mean ± std", justify="right")
    result.add_column("samples/s in training", justify="right")
    for embeddings, name in NAMES.items():
        aucs = [run.test_auc for run in runs if run.embeddings == embeddings]
        speed = np.median([run.samples_per_second for run in runs if run.embeddings == embeddings])
        result.add_row(name, f"{np.mean(aucs):.4f} ± {np.std(aucs):.4f}", f"{speed:,.0f}")
    return result


def picture(runs: list[Run], title: str, path: Path) -> None:
    """Training loss and validation AUC by epoch, a line a run."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    figure.suptitle(title)
    left, right = figure.subplots(1, 2)
    labelled = set()
    for run in runs:
        style = {"color": COLORS[run.embeddings], "alpha": 0.8, "marker": ".", "linewidth": 1.2}
        label = NAMES[run.embeddings] if run.embeddings not in labelled else None
        labelled.add(run.embeddings)
        epochs = range(1, 1 + len(run.loss))
        left.plot(epochs, run.loss, label=label, **style)
        right.plot(epochs, run.valid_auc, **style)
    left.set_ylabel("training loss (cross-entropy)")
    right.set_ylabel("validation AUC")
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    left.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
