"""Click logs with Criteo's schema, drawn from a teacher whose best AUC is known.

    python benchmarks/criteo_data OUT --train-rows 1000000 --scale 0.1

`parameters.py` says what may be chosen, `rows.py` how a row is drawn, `teacher.py` whether it is
clicked, `files.py` what is written.
"""

from criteo_data.auc import auc, expected_auc, log_loss
from criteo_data.files import Dataset, generate, load
from criteo_data.parameters import (
    CATEGORICAL,
    LABEL,
    MULTI_HOT,
    NUMERIC,
    Parameters,
    cardinalities,
)
from criteo_data.schema import schema

__all__ = [
    "CATEGORICAL",
    "LABEL",
    "MULTI_HOT",
    "NUMERIC",
    "Dataset",
    "Parameters",
    "auc",
    "cardinalities",
    "expected_auc",
    "generate",
    "load",
    "log_loss",
    "schema",
]
