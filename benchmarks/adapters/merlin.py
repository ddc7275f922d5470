"""merlin_embeddings: one Embeddings layer for all tables, one of its sparse optimizers."""

from __future__ import annotations

import configparser
import subprocess
from pathlib import Path

import numpy as np

from adapters import base
from adapters import tensorflow_runtime as runtime

ROOT = Path(__file__).resolve().parents[2]


def _version() -> str:
    """The package's version and, in a checkout, its commit; "-dirty" where files have changed."""
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return f"{metadata['metadata']['version']} {commit.stdout.strip()}".strip()


class Adapter(base.Adapter):
    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        runtime.configure(threads)

    def versions(self) -> dict[str, str]:
        from tensorflow import keras

        return {
            "merlin_embeddings": _version(),
            "tensorflow": runtime.tf.__version__,
            "keras": keras.__version__,
        }

    def build(self, tables: int, rows: int, dim: int) -> None:
        import merlin_embeddings as me

        self.dim = dim
        self.names = [f"f{t}" for t in range(tables)]
        self.layer = me.layers.Embeddings(
            {
                name: me.FeatureConfig(
                    name,
                    me.TableConfig(f"t{t}", vocabulary_size=rows, embedding_dim=dim),
                    combiner="sum",
                )
                for t, name in enumerate(self.names)
            }
        )
        self.layer.build()
        self.variables = [self.layer.tables[f"t{t}"].variable for t in range(tables)]

    def _lookup(self, batch):
        outputs = self.layer(dict(zip(self.names, batch, strict=True)))
        return [outputs[name] for name in self.names]

    def load(self, values: np.ndarray) -> None:
        for variable, value in zip(self.variables, values, strict=True):
            variable.assign(value)

    def read(self) -> np.ndarray:
        return np.stack([np.asarray(variable) for variable in self.variables])

    def steps(self, group: str, ids: np.ndarray) -> dict[str, base.Step]:
        from cases import LEARNING_RATE

        import merlin_embeddings as me

        batches = runtime.dense_ids(ids)
        if group == "forward":
            function = runtime.forward_function(self._lookup)
        else:
            rule = {
                "sgd": me.optimizers.SGD,
                "rowwise_adagrad": me.optimizers.RowwiseAdagrad,
                "adagrad": me.optimizers.Adagrad,
                "adam": me.optimizers.Adam,
            }[group]
            optimizer = rule(LEARNING_RATE)
            optimizer.build(self.variables)
            function = runtime.training_function(
                self._lookup,
                [variable.value for variable in self.variables],
                lambda gradients: optimizer.apply(gradients, self.variables),
                ids,
                self.dim,
            )
        return {"Embeddings": runtime.steps(function, batches)}

    def release(self) -> None:
        """Functions and optimizers are held by the steps alone."""
