"""Counts of a column for id maps, against NVTabular's own transform and a Counter."""

from collections import Counter

import numpy as np
import nvtabular as nvt
import pandas as pd
import pytest
from merlin.io import Dataset

from merlin_embeddings.data import frequencies

FRAME = pd.DataFrame(
    {
        "int": [5, 5, 5, 7, 7, 9, -2, 5],
        "holes": [5, 5, None, 7, 7, 9, None, 5],
        "text": ["x", "y", "x", None, "zz", "x", "x", "y"],
        "real": [0.5, 0.5, 1.5, 2.5, 0.5, 0.5, 0.5, -1],
    }
)


@pytest.fixture(scope="module")
def workflow(tmp_path_factory):
    op = nvt.ops.Categorify(out_path=str(tmp_path_factory.mktemp("fit")))
    workflow = nvt.Workflow(list(FRAME) >> op)
    workflow.fit(Dataset(FRAME))
    return workflow


@pytest.mark.parametrize("column", list(FRAME))
def test_ids_are_those_of_the_transform(workflow, column):
    encoded = workflow.transform(Dataset(FRAME)).to_ddf().compute()[column]
    ids, counts = frequencies(workflow, column)
    assert dict(zip(ids[counts > 0].tolist(), counts[counts > 0].tolist(), strict=True)) == Counter(
        encoded.tolist()
    )


@pytest.mark.parametrize("column", ["int", "holes", "text"])
def test_raw_values(workflow, column):
    ids, counts = frequencies(workflow, column, raw=True)
    assert dict(zip(ids.tolist(), counts.tolist(), strict=True)) == Counter(FRAME[column].dropna())
    assert ids.dtype == (object if column == "text" else np.int64)


def test_raw_values_that_are_no_ids(workflow):
    with pytest.raises(ValueError, match=r"'real': raw values such as .* are neither integers nor"):
        frequencies(workflow, "real", raw=True)
