"""Frames, and workflows of NVTabular fitted on them."""

import numpy as np
import nvtabular as nvt
import pandas as pd
from merlin.io import Dataset

FRAME = pd.DataFrame(
    {
        "int": [5, 5, 5, 7, 7, 9, -2, 5],
        "small": np.array([3, 3, 1, 2, 2, 2, 8, 9], "int32"),
        "other": [1, 2, 3, 4, 3, 3, 3, 3],
        "holes": [5, 5, None, 7, 7, 9, None, 5],
        "text": ["x", "y", "x", None, "zz", "x", "x", "y"],
        "real": [0.5, 0.5, 1.5, 2.5, np.nan, 0.5, 0.5, -1],
        "single": np.array([0.1, 0.1, 0.2, 0.3, 0.1, 0.1, 0.1, 0.2], "float32"),
    }
)
# Values that the fit saw, values that it didn't, and nulls.
NEW = pd.DataFrame(
    {
        "int": [9, 5, 77, -2, 78, 79, 7, 80],
        "small": np.array([8, 4, 5, 6, 7, 2, 3, -1], "int32"),
        "other": [4, 3, 2, 1, 0, 9, 8, 7],
        "holes": [9, None, 77, 5, 78, 79, 7, 80],
        "text": ["zz", "a", "b", None, "c", "x", "y", "d"],
        "real": [2.5, 9.5, np.nan, 0.5, 8.5, 7.5, -1, 0.0],
        "single": np.array([0.3, 0.1, 0.4, 0.5, 0.6, 0.7, 0.8, 0.2], "float32"),
    }
)
SCALARS = list(FRAME)


def fit(folder, columns, frame=FRAME, parts=1, **options):
    """A fitted workflow, saved to `folder / "saved"`."""
    op = nvt.ops.Categorify(out_path=str(folder / "fit"), **options)
    workflow = nvt.Workflow(columns >> op)
    workflow.fit(Dataset(frame, npartitions=parts))
    workflow.save(folder / "saved")
    return workflow


def transformed(workflow, frame):
    return workflow.transform(Dataset(frame)).to_ddf().compute()
