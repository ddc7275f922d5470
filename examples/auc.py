"""How well scores tell likes from the rest."""

import numpy as np
import pandas as pd


def auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Area under the ROC curve: the share of (like, other) pairs in the right order, ties half.

    By mean ranks; labels [N] of 0 and 1, scores [N].
    """
    liked, ranks = labels > 0, pd.Series(scores).rank().to_numpy()
    count = liked.sum()
    pairs = count * (len(labels) - count)
    return float((ranks[liked].sum() - count * (count + 1) / 2) / pairs)
