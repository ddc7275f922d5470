"""Lookup, pooling and gradients in plain numpy, one number at a time: what the ops must give."""

from __future__ import annotations

import numpy as np


def pool(table, lines, splits, weights, combiner):
    """Pooled vectors [B, D] and, for a maximum, the winning positions [B, D]."""
    bags, dim = len(splits) - 1, table.shape[1]
    pooled = np.zeros([bags, dim], np.float64)
    winners = np.full([bags, dim], -1)
    for bag in range(bags):
        own = [i for i in range(splits[bag], splits[bag + 1]) if lines[i] >= 0]
        if not own:
            continue
        vectors = table[lines[own]].astype(np.float64)
        w = np.ones(len(own)) if weights is None else weights[own].astype(np.float64)
        if combiner == "max":
            pooled[bag] = vectors.max(0)
            winners[bag] = np.asarray(own)[vectors.argmax(0)]  # argmax: the first of equals
            continue
        pooled[bag] = (w[:, None] * vectors).sum(0) * scale(w, combiner)
    return pooled, winners


def scale(weights, combiner):
    """What a bag's weighted sum is multiplied by."""
    if combiner == "sum" or len(weights) == 0:
        return 1.0
    divisor = weights.sum() if combiner == "mean" else np.sqrt((weights**2).sum())
    return 1 / divisor if divisor else 0.0


def table_gradient(table, lines, splits, weights, combiner, gradient):
    """Dense [R, D]."""
    result = np.zeros(table.shape, np.float64)
    _, winners = pool(table, lines, splits, weights, combiner)
    for bag in range(len(splits) - 1):
        own = [i for i in range(splits[bag], splits[bag + 1]) if lines[i] >= 0]
        w = np.ones(len(own)) if weights is None else weights[own].astype(np.float64)
        for i, weight in zip(own, w, strict=True):
            if combiner == "max":
                result[lines[i]] += np.where(winners[bag] == i, gradient[bag], 0)
            else:
                result[lines[i]] += weight * scale(w, combiner) * gradient[bag]
    return result


def weight_gradient(table, lines, splits, weights, combiner, gradient, step=1e-4):
    """[N], by central differences."""
    result = np.zeros(len(weights))
    for i in range(len(weights)):
        values = []
        for sign in (1, -1):
            moved = weights.astype(np.float64)
            moved[i] += sign * step
            pooled, _ = pool(table.astype(np.float64), lines, splits, moved, combiner)
            values.append((pooled * gradient).sum())
        result[i] = (values[0] - values[1]) / (2 * step)
    return result
