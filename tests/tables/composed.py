"""Compressed tables and pooling in numpy, one id at a time."""

import functools

import numpy as np

from tests.ids.xxh64 import row_of, xxh64


@functools.cache
def rows_of(number: int, rows: int, hashes: int, salt: int) -> list[int]:
    """The parameters that a row has."""
    seeds = [xxh64(k.to_bytes(8, "little"), salt % 2**64) for k in range(hashes)]
    return [row_of(number, rows, seed) for seed in seeds]


def vector_of(parameters, number: int, spec) -> np.ndarray:
    """The vector of a row of a table with `Bloom` or `DoubleHash`."""
    chosen = rows_of(int(number), len(parameters), getattr(spec, "hashes", 2), spec.salt)
    chosen = [parameters[row].astype(np.float64) for row in chosen]
    if spec.combine == "concat":
        return np.concatenate(chosen)
    return np.mean(chosen, 0) if spec.combine == "mean" else np.sum(chosen, 0)


def pooled(vectors: list, weights: list, combiner: str, dim: int) -> np.ndarray:
    """The vectors of one bag together."""
    if not vectors:
        return np.zeros(dim)
    if combiner == "max":
        return np.max(vectors, 0)
    total = sum(w * v for w, v in zip(weights, vectors, strict=True))
    if combiner == "mean":
        return total / sum(weights)
    return total / np.sqrt(sum(w * w for w in weights)) if combiner == "sqrtn" else total
