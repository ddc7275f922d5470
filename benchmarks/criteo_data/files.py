"""Parquet files, the schema beside them, and the record of how they were made.

OUT/train/part-00000.parquet ...      in the order of time
OUT/test/part-00000.parquet ...       what comes after
OUT/{train,test}/.merlin/schema.json  as NVTabular's to_parquet leaves it
OUT/criteo.json                       parameters, calibration, the teacher's AUC; written last
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from criteo_data.auc import auc, log_loss
from criteo_data.parameters import CATEGORICAL, LABEL, NUMERIC, Parameters
from criteo_data.rows import Block, Rows
from criteo_data.schema import schema

FORMAT = 1
RECORD = "criteo.json"


@dataclass(frozen=True)
class Dataset:
    """What `generate` made."""

    folder: Path
    parameters: Parameters
    record: dict

    @property
    def train(self) -> Path:
        """Folder of the files to train on."""
        return self.folder / "train"

    @property
    def test(self) -> Path:
        """Folder of the files to test on."""
        return self.folder / "test"

    @property
    def best_auc(self) -> float:
        """AUC of the true probabilities on the test rows: no model can do better, but by luck."""
        return self.record["test"]["auc"]

    @property
    def best_log_loss(self) -> float:
        """Cross-entropy of the true probabilities on the test rows."""
        return self.record["test"]["log_loss"]

    @cached_property
    def schema(self):
        """The `merlin.schema.Schema` of the files."""
        return schema(self.parameters)

    @property
    def nbytes(self) -> int:
        """Of the Parquet files."""
        return sum(path.stat().st_size for path in self.folder.glob("*/*.parquet"))


def load(folder: str | Path) -> Dataset:
    """The data set in a folder.

    Raises:
        FileNotFoundError: there is none, or writing it did not come to its end.
    """
    folder = Path(folder)
    record = json.loads((folder / RECORD).read_text())
    return Dataset(folder, Parameters(**record["parameters"]), record)


def generate(folder: str | Path, parameters: Parameters, threads: int = 2) -> Dataset:
    """Writes a data set, or returns the one of the same parameters that is there already.

    Memory is bounded: a few row groups, and 12 bytes for each test row. The number of threads
    doesn't change what is written.
    """
    folder = Path(folder)
    try:
        found = load(folder)
        if found.record["format"] == FORMAT and found.parameters == parameters:
            return found
    except FileNotFoundError:
        pass
    (folder / RECORD).unlink(missing_ok=True)
    for old in folder.glob("*/part-*.parquet"):
        old.unlink()

    rows = Rows(parameters)
    first_test_block = -(-parameters.train_rows // parameters.rows_per_group)
    clicks = _write(folder / "train", rows, 0, 0, parameters.train_rows, threads)
    train_clicks = sum(int(block.sum()) for block, _ in clicks)
    labels, probabilities = map(
        np.concatenate,
        zip(
            *_write(
                folder / "test", rows, first_test_block, parameters.train_rows,
                parameters.test_rows, threads,
            ),
            strict=True,
        ),
    )  # fmt: skip
    both = 0 < labels.sum() < len(labels)
    record = {
        "format": FORMAT,
        "parameters": parameters.to_dict(),
        "teacher": rows.teacher.record(),
        "train": {
            "rows": parameters.train_rows,
            "click_rate": train_clicks / parameters.train_rows,
        },
        "test": {
            "rows": len(labels),
            "click_rate": float(labels.mean()),
            "auc": auc(labels, probabilities) if both else None,
            "log_loss": log_loss(labels, probabilities),
        },
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")
    return Dataset(folder, parameters, record)


def _write(
    folder: Path, rows: Rows, block: int, first: int, count: int, threads: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Writes `count` rows from row `first` on; yields each block's labels and probabilities."""
    parameters = rows.parameters
    folder.mkdir(parents=True, exist_ok=True)
    _write_schema(folder, parameters)
    size, stop, writer = parameters.rows_per_group, first + count, None
    starts = [(block + i, start) for i, start in enumerate(range(first, stop, size))]
    blocks_per_file = parameters.rows_per_file // size
    try:
        for i, drawn in enumerate(_blocks(rows, starts, stop, threads)):
            table = to_arrow(drawn)
            if i % blocks_per_file == 0:
                if writer:
                    writer.close()
                path = folder / f"part-{i // blocks_per_file:05}.parquet"
                writer = pq.ParquetWriter(path, table.schema, use_dictionary=_dictionaries(table))
            writer.write_table(table, row_group_size=size)
            yield drawn.labels, drawn.probabilities
    finally:
        if writer:
            writer.close()


def _blocks(rows: Rows, starts: list, stop: int, threads: int) -> Iterator[Block]:
    """Blocks in order, drawn by threads that run at most `threads` blocks ahead."""
    size = rows.parameters.rows_per_group
    with ThreadPoolExecutor(threads) as pool:
        waiting: collections.deque = collections.deque()
        for number, start in starts:
            waiting.append(pool.submit(rows.block, number, start, min(size, stop - start)))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def to_arrow(block: Block) -> pa.Table:
    """Columns label, I1 ... I13, C1 ... C26; lists of int64 where a column is multi-hot."""
    columns = {LABEL: pa.array(block.labels)}
    columns |= dict(zip(NUMERIC, map(pa.array, block.numbers), strict=True))
    for name, (values, row_splits) in zip(CATEGORICAL, block.ids, strict=True):
        array = pa.array(values)
        if row_splits is not None:
            array = pa.ListArray.from_arrays(pa.array(row_splits), array)
        columns[name] = array
    return pa.table(columns)


def _dictionaries(table: pa.Table) -> list[str]:
    """Leaf columns worth a dictionary: ids repeat, numbers don't."""
    return [
        f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
        for field in table.schema
        if field.name in CATEGORICAL
    ]


def _write_schema(folder: Path, parameters: Parameters) -> None:
    from merlin.schema.io.tensorflow_metadata import TensorflowMetadata

    hidden = folder / ".merlin"  # readers of Parquet folders pass over it
    hidden.mkdir(exist_ok=True)
    TensorflowMetadata.from_merlin_schema(schema(parameters)).to_json_file(str(hidden))
