"""Pooling once more, in numpy."""

import numpy as np
import pytest


def _pool(table, bags, combiner, weights=None, padding_id=None):
    """Vectors [B, D] of bags (lists of rows), each a sum, mean, ... over its rows, in float64."""
    table = np.asarray(table, np.float64)
    pooled = np.zeros((len(bags), table.shape[1]))
    for b, bag in enumerate(bags):
        its_weights = [1.0] * len(bag) if weights is None else weights[b]
        kept = [(row, w) for row, w in zip(bag, its_weights, strict=True) if row != padding_id]
        if not kept:
            continue
        vectors = table[[row for row, _ in kept]]
        w = np.array([w for _, w in kept])
        if combiner == "max":
            pooled[b] = vectors.max(axis=0)
            continue
        divisor = {"sum": 1.0, "mean": w.sum(), "sqrtn": np.sqrt((w**2).sum())}[combiner]
        pooled[b] = (vectors * w[:, None]).sum(axis=0) / divisor
    return pooled


@pytest.fixture(scope="session")
def pool():
    """The function `pool(table, bags, combiner, weights=None, padding_id=None)`."""
    return _pool


@pytest.fixture(scope="session")
def table():
    """A table [11, 3] whose values have both signs."""
    return np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
