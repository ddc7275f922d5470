"""`batches`: from where NVTabular leaves the rows to what Keras's `fit` takes."""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings.data.arrow import fields_of
from merlin_embeddings.data.checking import rules
from merlin_embeddings.data.columns import Column
from merlin_embeddings.data.columns import columns as read_columns
from merlin_embeddings.data.frames import dataset_source
from merlin_embeddings.data.layout import Layout
from merlin_embeddings.data.loaders import from_dataset, from_loader
from merlin_embeddings.data.parquet import ParquetSource, parquet_files
from merlin_embeddings.data.plan import Share, order_of, spans
from merlin_embeddings.data.selection import select
from merlin_embeddings.data.streams import Source, chunks, stacks

WINDOW = 131_072  # rows that `shuffle=True` shuffles together
_CROSSING = 32_768  # rows that cross from Python into TensorFlow at once, in several batches


def batches(
    source: Any,
    schema: Any = None,
    *,
    batch_size: int | None = None,
    columns: Sequence[str] | None = None,
    targets: Any = None,
    shuffle: bool | int = False,
    seed: int | None = None,
    shard: tuple[int, int] | None = None,
    drop_remainder: bool = False,
    check: bool = True,
    prefetch: int = 2,
) -> tf.data.Dataset:
    """Batches for `fit`, `evaluate` and `predict`.

    Each element is `(features, target)`. Features are a dict by column: numbers and ids `[B]`,
    lists `tf.RaggedTensor [B, None]`, columns of vectors (tagged "embedding", of one length)
    `[B, D]`. One target is a tensor `[B]`, several are a dict. Without targets an element is the
    features alone. Dtypes are the schema's, or those of the data.

    Args:
        source: where the rows are:

            - Parquet: a file, a folder, a pattern ("day_*.parquet"), or a list of these; this is
              the fastest;
            - a `merlin.io.Dataset`; one of Parquet files is read as these;
            - a `merlin.dataloader.tensorflow.Loader`, whose batches are taken as they come;
            - a `tf.data.Dataset` of dicts, or of (dict, target): of batches if there is no
              `batch_size`, else of rows.
        schema: a `merlin.schema.Schema` or Columns. None: a Loader's and a Dataset's own; with
            Parquet, all columns are features, of the types that they have.
        batch_size: B. A Loader has its own.
        columns: the features. None: with a schema the columns tagged as categorical, continuous or
            embedding (as `keras_inputs` has them), or all if none is; without one all columns.
            Never the targets.
        targets: a column, or a tag such as `Tags.REGRESSION`; a list makes a dict. None: what the
            schema tags as targets; []: none.
        shuffle: True: row groups come in random order, and windows of 131,072 rows are shuffled; an
            integer is the window's rows. In each epoch differently.
        seed: of all shuffling: epoch n of a dataset is the same whenever it is made with this seed.
            None: drawn from numpy's, which `keras.utils.set_random_seed` sets. Processes that share
            rows need the same.
        shard: (index, count): this process's share of the rows. In each epoch each row is in
            exactly one share, and all shares have the same number of batches.
        drop_remainder: only full batches.
        check: hold values against the schema: ids against domains, lengths of lists against
            value_count. Costs next to nothing where Parquet has statistics.
        prefetch: batches made ahead.

    Returns:
        A `tf.data.Dataset` with a known number of batches where the source has one. An iteration
        over it is an epoch.

    Raises:
        FileNotFoundError: no files.
        ValueError: no rows; a column that is missing or of another type than the schema says; a
            domain of ids without a maximum; arguments that the source can't have. Values are seen
            when they are read: then TensorFlow reports an error (`tf.errors.InvalidArgumentError`)
            whose message names column, row, file, value and domain.

    Example:
        >>> import tempfile, pandas
        >>> from merlin_embeddings.data import Column, Domain
        >>> schema = [
        ...     Column("item", ("categorical",), "int64", domain=Domain("item", 0, 9)),
        ...     Column("click", ("target",)),
        ... ]
        >>> frame = pandas.DataFrame({"item": [3, 1, 4], "click": [1, 0, 1]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     frame.to_parquet(f"{folder}/rows.parquet")
        ...     for features, target in batches(folder, schema, batch_size=2):
        ...         print(features["item"].numpy(), target.numpy())
        [3 1] [1 0]
        [4] [1]
    """
    if batch_size is not None:
        batch_size = _integer("batch_size", batch_size, 1, "a positive integer")
    if shard is not None and not _is_shard(shard):
        raise ValueError(f"batches: shard={shard!r}; it must be (index, count) with index < count.")
    prefetch = _integer("prefetch", prefetch, 0, "a number of batches, 0 for none")
    shuffling = _Shuffling(shuffle, seed, shard)
    known = _known(source, schema)
    if _is_loader(source):
        given = {"batch_size": batch_size, "shuffle": shuffle, "shard": shard}
        own = {"batch_size": source.batch_size}
        _refuse_arguments(given | {"drop_remainder": drop_remainder}, own)
        dataset = from_loader(source, known, columns, targets, check)
    elif isinstance(source, tf.data.Dataset):
        if shard is not None:
            source = source.shard(shard[1], shard[0])
        if shuffling.rows:
            source = source.shuffle(shuffling.rows, shuffling.seed)
        dataset = from_dataset(source, known, columns, targets, batch_size, drop_remainder)
    else:
        if batch_size is None:
            raise ValueError("batches: batch_size= is needed for rows that aren't in batches yet.")
        index, count = shard or (0, 1)
        opened = _open(source)
        share = Share.of(sum(opened.pieces), batch_size, index, count, drop_remainder)
        dataset = _stream(opened, known, columns, targets, share, batch_size, shuffling, check)
    if shard is not None:
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        dataset = dataset.with_options(options)
    return dataset.prefetch(prefetch) if prefetch else dataset


class _Shuffling:
    """What is random: `rows` of a window (0: nothing), and generators for each epoch."""

    def __init__(self, shuffle: bool | int, seed: int | None, shard: Any) -> None:
        if not isinstance(shuffle, bool):
            shuffle = _integer("shuffle", shuffle, 0, "True, False or a number of rows")
        if shuffle and seed is None and shard is not None:
            raise ValueError(
                "batches: processes that share shuffled rows need one seed, so that each row is "
                "read once: give all the same seed=."
            )
        self.rows = WINDOW if shuffle is True else int(shuffle)
        if seed is None:
            seed = int(np.random.randint(2**31))
        self.seed = _integer("seed", seed, 0, "None, or an integer that isn't negative")

    def of(self, *key: int) -> np.random.Generator | None:
        return np.random.default_rng([self.seed, *key]) if self.rows else None


def _integer(name: str, value: Any, least: int, what: str) -> int:
    """`value`, which may be numpy's, as an int."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < least:
        raise ValueError(f"batches: {name}={value!r}; it must be {what}.")
    return operator.index(value)


def _is_shard(shard: Any) -> bool:
    pair = isinstance(shard, (tuple, list)) and len(shard) == 2
    return pair and all(hasattr(n, "__index__") for n in shard) and 0 <= shard[0] < shard[1]


def _stream(
    source: Source,
    known: list[Column],
    columns: Sequence[str] | None,
    targets: Any,
    share: Share,
    batch_size: int,
    shuffling: _Shuffling,
    check: bool,
) -> tf.data.Dataset:
    selection = select(source.schema.names, known, columns, targets)
    by_name = {column.name: column for column in known}
    layout = Layout(fields_of(source.schema, selection.names, by_name, source.name))
    source.require(selection.names)
    chosen = [by_name[name] for name in selection.names if name in by_name]
    checks = rules(chosen) if check else {}
    per_stack = -(-_CROSSING // batch_size)
    window = max(-(-shuffling.rows // batch_size), per_stack if not shuffling.rows else 1)
    epochs = itertools.count()

    def epoch() -> Iterator[tuple[np.ndarray, ...]]:
        number = next(epochs)
        order = order_of(len(source.pieces), shuffling.of(number))
        rows = chunks(source, spans(source.pieces, order, share.start, share.stop), layout, checks)
        rng = shuffling.of(number, share.start)
        yield from stacks(rows, layout, share.sizes, per_stack, window, rng)

    def unstack(*tensors: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.range(layout.batches(tensors)).map(
            lambda batch: selection.split(layout.unpack(batch, tensors))
        )

    stacked = tf.data.Dataset.from_generator(epoch, output_signature=layout.signature)
    dataset = stacked.prefetch(1).flat_map(unstack)
    return dataset.apply(tf.data.experimental.assert_cardinality(len(share.sizes)))


def _known(source: Any, schema: Any) -> list[Column]:
    if schema is None:
        schema = getattr(source, "output_schema", None) if _is_loader(source) else None
        if schema is None and _is_merlin_dataset(source):
            schema = source.schema
    return [] if schema is None else read_columns(schema)


def _open(source: Any) -> Source:
    if _is_merlin_dataset(source):
        return dataset_source(source)
    if isinstance(source, (str, os.PathLike, list, tuple)):
        return ParquetSource(parquet_files(source))
    raise TypeError(
        f"batches: the source is a {type(source).__name__}; it must be Parquet (a path, a folder, "
        "a pattern, a list of these), a merlin.io.Dataset, a Loader or a tf.data.Dataset."
    )


def _is_loader(source: Any) -> bool:
    return hasattr(source, "output_schema") and hasattr(source, "peek")


def _is_merlin_dataset(source: Any) -> bool:
    return hasattr(source, "engine") and hasattr(source, "to_ddf")


def _refuse_arguments(given: dict[str, Any], own: dict[str, Any]) -> None:
    for name, value in given.items():
        if value and value != own.get(name):
            raise ValueError(
                f"batches: {name}={value!r} with a Loader, which makes its batches itself. Give it "
                "to the Loader (batch_size, shuffle, global_size and global_rank, drop_last), or "
                "give batches its dataset: batches(loader.dataset, ...)."
            )
