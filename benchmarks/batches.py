"""Rows a second of `me.data.batches` on Criteo's schema, beside Arrow's own read and other ways.

    python benchmarks/batches.py [--rows 2000000] [--batch-size 16384] [--seconds 4] [--json FILE]

Ways take turns on the same files, and medians are compared:

- Arrow: the Parquet files decoded by pyarrow and dropped; nothing can be faster that reads by it.
- ours, as it is and shuffled.
- one tensor a column: `tf.data.Dataset.from_generator` over Arrow's batches, the obvious way.
- Merlin's Loader, and our `batches` over it.

Batches are consumed in a graph, as `fit` does; no way's first epoch counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf
from criteo_data.files import Dataset, generate
from criteo_data.parameters import Parameters
from machine import CpuUsage

import merlin_embeddings as me

ARROW_ROWS = 32_768  # a decode of so many at a time is the fastest of those tried

Way = Callable[[], Iterator[int]]  # rows of one epoch, batch by batch


def arrow(data: Dataset, batch_size: int) -> Way:
    files = sorted(map(str, data.train.glob("*.parquet")))

    def read() -> Iterator[int]:
        for file in files:
            for batch in pq.ParquetFile(file, memory_map=True).iter_batches(ARROW_ROWS):
                yield batch.num_rows

    return read


def in_graph(dataset: tf.data.Dataset) -> Way:
    """Only the number of rows comes to Python."""
    counts = dataset.map(lambda _, target: tf.shape(target)[0]).prefetch(2)
    return lambda: (int(count) for count in counts)


def ours(shuffle: bool) -> Callable[[Dataset, int], Way]:
    def make(data: Dataset, batch_size: int) -> Way:
        return in_graph(
            me.data.batches(data.train, data.schema, batch_size=batch_size, shuffle=shuffle, seed=0)
        )

    return make


def tensor_a_column(data: Dataset, batch_size: int) -> Way:
    files = sorted(map(str, data.train.glob("*.parquet")))
    schema = pq.read_schema(files[0])

    def read() -> Iterator[dict]:
        for file in files:
            for batch in pq.ParquetFile(file, memory_map=True).iter_batches(batch_size):
                yield dict(zip(schema.names, (c.to_numpy() for c in batch), strict=True))

    signature = {
        field.name: tf.TensorSpec([None], tf.as_dtype(field.type.to_pandas_dtype()))
        for field in schema
    }
    dataset = tf.data.Dataset.from_generator(read, output_signature=signature)
    return in_graph(dataset.map(lambda x: (x, x.pop("label"))).prefetch(2))


def loader(data: Dataset, batch_size: int) -> Way:
    made = _loader(data, batch_size)
    return lambda: (int(target.shape[0]) for _, target in made)


def ours_over_the_loader(data: Dataset, batch_size: int) -> Way:
    return in_graph(me.data.batches(_loader(data, batch_size)))


def _loader(data: Dataset, batch_size: int):
    from merlin.dataloader.tensorflow import Loader
    from merlin.io import Dataset as MerlinDataset

    dataset = MerlinDataset(str(data.train), engine="parquet", schema=data.schema)
    return Loader(dataset, batch_size=batch_size, shuffle=False)


WAYS = {
    "Arrow, decoded and dropped": arrow,
    "ours": ours(shuffle=False),
    "ours, shuffled": ours(shuffle=True),
    "one tensor a column": tensor_a_column,
    "Merlin's Loader": loader,
    "ours over the Loader": ours_over_the_loader,
}


def measure(ways: dict[str, Way], seconds: float) -> dict[str, dict]:
    """Epochs by turns until each way had so many seconds: median rows/s, CPU ns a row."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    costs: dict[str, list[float]] = {name: [] for name in ways}
    spent = dict.fromkeys(ways, 0.0)
    for way in ways.values():
        sum(way())
    while any(value < seconds for value in spent.values()):
        for name, way in ways.items():
            if spent[name] >= seconds:
                continue
            wall, cpu = time.perf_counter(), time.process_time()
            rows = sum(way())
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            spent[name] += wall
            rates[name].append(rows / wall)
            costs[name].append(cpu / rows * 1e9)
    return {
        name: {
            "rows_per_second": statistics.median(rates[name]),
            "cpu_ns_per_row": statistics.median(costs[name]),
            "epochs": len(rates[name]),
        }
        for name in ways
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch-size", type=int, default=16_384)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each way")
    parser.add_argument("--folder", type=Path, help="where the data set is kept")
    parser.add_argument("--json", type=Path, help="where the figures are written")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        parameters = Parameters(train_rows=arguments.rows, test_rows=1000)
        data = generate(arguments.folder or Path(temporary) / "criteo", parameters)
        usage = CpuUsage()
        ways = {name: make(data, arguments.batch_size) for name, make in WAYS.items()}
        results = measure(ways, arguments.seconds)
        others = usage.others_percent()
    limit = results["Arrow, decoded and dropped"]["rows_per_second"]
    print(f"{arguments.rows:,} rows of Criteo's schema, batches of {arguments.batch_size:,}")
    print(f"{'':28} {'M rows/s':>9} {'of Arrow':>9} {'CPU ns/row':>11}")
    for name, result in results.items():
        rate = result["rows_per_second"]
        print(f"{name:28} {rate / 1e6:9.2f} {rate / limit:9.2f} {result['cpu_ns_per_row']:11.0f}")
    print(f"{os.cpu_count()} cores, of whose time others took {others:.0f}%")
    if arguments.json:
        record = {"rows": arguments.rows, "batch_size": arguments.batch_size, "ways": results}
        record |= {"cores": os.cpu_count(), "others_percent": others}
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    np.random.seed(0)
    main()
