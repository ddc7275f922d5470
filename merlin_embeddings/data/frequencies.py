"""How often the ids of a column were seen, as id maps that go by frequency want it."""

from __future__ import annotations

from typing import Any

import numpy as np

from merlin_embeddings.data.categorify import Categories


def frequencies(source: Any, column: Any, raw: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The ids of a column and their counts, as NVTabular's Categorify counted them.

    For `ids.FrequencyCap(*frequencies(workflow, "item"), min_count=5)` and `ids.FrequencyHash`.

    Args:
        source: a fitted workflow, the folder of a saved one, or a schema; see `Categories.of`.
        column: the column's name; see `Categories.of`.
        raw: the values as they were before Categorify, for a model that is fed with them: integers
            or strings, those of the vocabulary only. Else the ids that Categorify gives:
            0 (padding), 1 (null), 2 (out of vocabulary) and so on.

    Returns:
        `(ids [N], counts [N] int64)`: ids are int64 or, as objects, strings.

    Raises:
        FileNotFoundError: as `Categories.of` does.
        ValueError: as `Categories` does, or raw values that are neither integers nor strings.

    Example:
        >>> import nvtabular, pandas, tempfile
        >>> frame = pandas.DataFrame({"city": ["Rome", "Oslo", "Rome", None]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     op = nvtabular.ops.Categorify(out_path=folder)
        ...     workflow = nvtabular.Workflow(["city"] >> op)
        ...     _ = workflow.fit(nvtabular.Dataset(frame))
        ...     frequencies(workflow, "city"), frequencies(workflow, "city", raw=True)
        ... # doctest: +NORMALIZE_WHITESPACE
        ((array([0, 1, 2, 3, 4]), array([0, 1, 0, 2, 1])),
         (array(['Rome', 'Oslo'], dtype=object), array([2, 1])))
    """
    found = Categories.of(source, column)
    if not raw:
        return np.arange(found.cardinality), found.counts
    values = found.values(np.arange(found.unique.start, found.unique.stop))
    return _as_ids(values, found.name), found.counts[found.unique.start :]


def _as_ids(values: np.ndarray, name: str) -> np.ndarray:
    if all(isinstance(value, str) for value in values):
        return values
    # A column with nulls has floats for integers.
    whole = all(
        isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value)
        for value in values
    )
    if not whole:
        raise ValueError(
            f"Categories {name!r}: raw values such as {values[0]!r} are neither integers nor "
            "strings, so that no table can have them for ids; take Categorify's ids (raw=False)."
        )
    return np.array([int(value) for value in values], np.int64)
