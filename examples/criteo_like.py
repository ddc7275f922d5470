"""Will this ad be clicked? DLRM with 10 million rows of tables, trained from Parquet on two cores.

    python examples/criteo_like.py                      # a few minutes, a gigabyte of disk
    python examples/criteo_like.py --scale 1 --dim 32   # Criteo's own 34 million rows
    python examples/criteo_like.py --drift 2            # ids gain and lose popularity on the way

The click logs are drawn: 13 numbers and 26 ids a row, with Criteo's cardinalities times `--scale`,
and a label from a teacher that knows the true probability of each click. No model ranks clicks
better than the teacher: its AUC on the test rows is what there is to reach.
"""

import argparse
import resource
import sys
import time
from pathlib import Path

sys.path.extend(str(Path(__file__).resolve().parents[1] / folder) for folder in ("", "benchmarks"))

import criteo_data
import numpy as np
from rich.console import Console
from rich.table import Table
from tensorflow import keras

import merlin_embeddings as me

CACHE = Path(__file__).resolve().parent / "cache" / "criteo"


def arguments(argv=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=6_000_000, help="to train on, each once")
    parser.add_argument("--test-samples", type=int, default=500_000)
    parser.add_argument("--scale", type=float, default=0.3, help="of Criteo's cardinalities")
    parser.add_argument("--drift", type=float, default=0.0, help="changes of popularity an id")
    parser.add_argument("--dim", type=int, default=16, help="of the embeddings")
    parser.add_argument("--batch-size", type=int, default=8192)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=CACHE, help="a folder")
    return parser.parse_args(argv)


def click_logs(options: argparse.Namespace) -> criteo_data.Dataset:
    """Parquet files and their schema, written unless they are there already."""
    parameters = criteo_data.Parameters(
        train_rows=options.samples,
        test_rows=options.test_samples,
        seed=options.seed,
        cardinalities=criteo_data.cardinalities(options.scale),
        drift=options.drift,
    )
    return criteo_data.generate(options.data, parameters)


def mlp(widths: list[int]) -> keras.Sequential:
    return keras.Sequential([keras.layers.Dense(width, "relu") for width in widths])


def dot_products(vectors):
    """The dot products of all pairs of F vectors: [B, F, D] -> [B, F * (F - 1) / 2]."""
    count = vectors.shape[1]
    products = keras.ops.einsum("bid,bjd->bij", vectors, vectors)
    below_diagonal = [i * count + j for i in range(count) for j in range(i)]
    return keras.ops.take(keras.ops.reshape(products, (-1, count**2)), below_diagonal, axis=1)


def dlrm(schema, dim: int) -> keras.Model:
    """DLRM (Naumov et al., 2019, https://arxiv.org/abs/1906.00091) for the columns of a schema."""
    inputs = me.data.keras_inputs(schema)
    block = me.layers.InputBlock(
        schema,
        categorical=me.features_from_schema(schema, dim),  # a table a column
        continuous=mlp([64, dim]),  # all numbers together become one more vector
        aggregation=None,
    )
    vectors = block(inputs)  # {column: [B, dim]}
    pairs = dot_products(keras.ops.stack(list(vectors.values()), axis=1))
    x = keras.ops.concatenate([vectors["continuous"], pairs], axis=1)
    click = keras.layers.Dense(1, "sigmoid", name="click")(mlp([128, 64])(x))
    return keras.Model(inputs, click, name="dlrm")


def compiled(schema, dim: int) -> keras.Model:
    model = dlrm(schema, dim)
    optimizer = me.optimizers.Split(
        dense=keras.optimizers.Adam(0.001),
        embeddings=me.optimizers.RowwiseAdagrad(0.05),  # one number a row beside its vector
    )
    model.compile(optimizer, "binary_crossentropy")
    return model


def test_auc(model: keras.Model, batches) -> float:
    labels = np.concatenate([labels for _, labels in batches.as_numpy_iterator()])
    return criteo_data.auc(labels, model.predict(batches, verbose=0))


def main(argv=None) -> None:
    options = arguments(argv)
    keras.utils.set_random_seed(options.seed)
    start = time.perf_counter()
    logs = click_logs(options)
    written = time.perf_counter()

    schema, size = logs.schema, options.batch_size
    model = compiled(schema, options.dim)
    train = me.data.batches(logs.train, schema, batch_size=size, shuffle=True)
    test = me.data.batches(logs.test, schema, batch_size=size)
    begun = time.perf_counter()
    model.fit(train, shuffle=False, verbose=1 if sys.stdout.isatty() else 2)
    trained = time.perf_counter()

    rows = sum(column.rows for column in me.data.categorical(schema))
    table = Table(title="DLRM on click logs like Criteo's", title_justify="left", show_header=False)
    for what, value in {
        "rows of tables": f"{rows:,}",
        "their weights": f"{4e-9 * rows * options.dim:.2f} GB",
        "memory of this process, at most": f"{peak_bytes() / 1e9:.2f} GB",
        "time to draw and write the logs": f"{written - start:.0f} s",
        "samples/s in training": f"{options.samples / (trained - begun):,.0f}",
        "test AUC": f"{test_auc(model, test):.4f}",
        "the teacher's AUC, the best there is": f"{logs.best_auc:.4f}",
    }.items():
        table.add_row(what, value)
    Console().print(table)


def peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
