"""How well probabilities rank clicks, and how well they can."""

from __future__ import annotations

import numpy as np


def auc(labels, scores) -> float:
    """Share of (clicked, not clicked) pairs in which the clicked one has the higher score.

    labels [N] of 0 and 1, scores [N]; pairs of equal scores count one half.
    """
    labels = np.asarray(labels).ravel() > 0
    clicks = int(labels.sum())
    if clicks in (0, len(labels)):
        raise ValueError(f"AUC needs clicks and others, got {clicks} clicks of {len(labels)} rows")
    _, groups, sizes = np.unique(np.ravel(scores), return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(sizes) - (sizes - 1) / 2  # from 1, ties share theirs
    won = mean_ranks[groups[labels]].sum() - clicks * (clicks + 1) / 2
    return float(won / clicks / (len(labels) - clicks))


def expected_auc(probabilities) -> float:
    """The AUC of true probabilities [N] that differ, before any label is drawn.

    The expected number of pairs ranked rightly over the expected number of pairs: no ranking does
    better in the long run.
    """
    p = np.sort(np.ravel(probabilities).astype(np.float64))
    others = np.cumsum(1 - p) - (1 - p) / 2  # its own is half a tie
    return float((p * others).sum() / (p.sum() * (1 - p).sum()))


def log_loss(labels, probabilities) -> float:
    """Mean binary cross-entropy [N], in nats."""
    labels = np.ravel(labels).astype(np.float64)
    p = np.clip(np.ravel(probabilities).astype(np.float64), 1e-12, 1 - 1e-12)
    return float(-np.mean(labels * np.log(p) + (1 - labels) * np.log1p(-p)))
