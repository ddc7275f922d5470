"""From what users and films are to what a model takes: an NVTabular workflow.

Its statistics are those of the training ratings. Users and films that only come later are "out of
vocabulary": they have one id, and a vector that nobody trains.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

import merlin_embeddings as me

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Merlin could use and doesn't find
    import nvtabular as nvt
    from merlin.schema import Schema, Tags
    from nvtabular import ops

CATEGORIES = ["user", "item", "genres", "gender", "occupation", "zip", "hour", "weekday"]
NUMBERS = ["age", "year"]


def workflow(folder: Path) -> nvt.Workflow:
    """Ids for the categories and for the age, numbers of mean 0 and variance 1, the target.

    Args:
        folder: where `Categorify` writes which id stands for what.
    """
    categories = CATEGORIES >> ops.Categorify(out_path=str(folder))
    age_group = ["age"] >> ops.Rename(name="age_group") >> ops.Categorify(out_path=str(folder))
    numbers = NUMBERS >> ops.FillMedian() >> ops.Normalize()
    like = ["like"] >> ops.AddMetadata(tags=[Tags.TARGET, Tags.BINARY_CLASSIFICATION])
    return nvt.Workflow(categories + age_group + numbers + like)


@dataclass(frozen=True)
class Prepared:
    """The ratings as ids and numbers: a folder with `train`, `valid` and `test` as Parquet."""

    folder: Path
    schema: Schema
    fingerprint: me.data.Fingerprint  # of the workflow: a model keeps it, serving compares

    @property
    def workflow(self) -> Path:
        """The saved workflow, which makes the same of raw rows that have no "like" yet."""
        return self.folder / "workflow"

    def batches(self, part: str, batch_size: int = 8192, seed: int | None = None):
        """A `tf.data.Dataset` of (features by column, likes `[B]`).

        With a seed every epoch has another order, the same in every run.
        """
        return me.data.batches(
            self.folder / part,
            self.schema,
            batch_size=batch_size,
            shuffle=seed is not None,
            seed=seed,
        )

    def likes(self, part: str) -> np.ndarray:
        """The labels `[N]` of a part, in the order of its batches."""
        return np.concatenate([likes for _, likes in self.batches(part)])


def prepare(parts: dict[str, pd.DataFrame], folder: Path) -> Prepared:
    """Fits the workflow on `parts["train"]`, and writes what it makes of all parts."""
    warnings.filterwarnings("ignore", "Initializing an NVTabular Dataset in CPU mode")
    fitted = workflow(folder).fit(nvt.Dataset(parts["train"]))
    for name, ratings in parts.items():
        fitted.transform(nvt.Dataset(ratings)).to_parquet(str(folder / name))
    prepared = Prepared(folder, fitted.output_schema, me.data.Fingerprint.of(fitted))
    fitted.remove_inputs(["like"]).save(str(prepared.workflow))
    return prepared
