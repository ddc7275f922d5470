"""Lookups of several features in several tables, in as few native calls as there can be."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from merlin_embeddings import compat, native
from merlin_embeddings.tables.compression import expand
from merlin_embeddings.tables.dense import DenseTable
from merlin_embeddings.tables.request import Request


def lookup(requests: Sequence[Request]) -> list[tf.Tensor]:
    """Pooled vectors of all requests.

    One native call serves all tables of one dtype that train, and another those that don't: a
    frozen table then costs no gradient.

    Args:
        requests: F of them.

    Returns:
        F tensors float32 in the order of the requests: [B, D], or [N, D] for combiner None.

    Raises:
        tf.errors.InvalidArgumentError: lines out of range, NaN weights, broken row_splits.
    """
    parts = expand(requests)
    vectors = iter(_look_up([one for own in parts for one in own]))
    return [
        _finished(request, [next(vectors) for _ in own])
        for request, own in zip(requests, parts, strict=True)
    ]


def _finished(request: Request, vectors: Sequence[tf.Tensor]) -> tf.Tensor:
    if request.compression is None:
        return vectors[0]
    return request.compression.finish(request, vectors)


def _look_up(requests: Sequence[Request]) -> list[tf.Tensor]:
    """The results of lookups of rows."""
    groups: dict[tuple, list[int]] = {}
    for index, request in enumerate(requests):
        variable = request.table.variable
        groups.setdefault((variable.dtype, variable.trainable), []).append(index)
    results: list[Any] = [None] * len(requests)
    for members in groups.values():
        for index, result in zip(members, _call([requests[i] for i in members]), strict=True):
            results[index] = result
    return results


def _call(requests: Sequence[Request]) -> list[tf.Tensor]:
    tables: dict[int, DenseTable] = {}
    for request in requests:
        tables.setdefault(id(request.table), request.table)
    position = {key: at for at, key in enumerate(tables)}
    variables = [compat.raw_variable(table.variable) for table in tables.values()]
    guards = [table.guard for table in tables.values()]
    poolings = [
        native.Pooling(
            table=position[id(request.table)],
            lines=request.route.lines,
            row_splits=request.route.row_splits,
            weights=request.route.weights,
            combiner=request.combiner,
            hotness=request.route.hotness,
            name=request.name,
            strict=request.route.strict,
        )
        for request in requests
    ]
    return native.lookup(variables, poolings, guards)
