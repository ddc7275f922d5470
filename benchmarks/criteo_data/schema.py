"""The schema as a workflow of Categorify and Normalize leaves it."""

from __future__ import annotations

from criteo_data.parameters import CATEGORICAL, LABEL, NUMERIC, Parameters


def schema(parameters: Parameters):
    """A `merlin.schema.Schema`: domains, value counts of lists, suggested sizes, tags."""
    from merlin.schema import ColumnSchema, Schema, Tags

    columns = [
        ColumnSchema(LABEL, [Tags.BINARY_CLASSIFICATION, Tags.TARGET], dtype="int32"),
        *(ColumnSchema(name, [Tags.CONTINUOUS], dtype="float32") for name in NUMERIC),
    ]
    for name, rows, hotness in zip(
        CATEGORICAL, parameters.table_rows, parameters.hotness, strict=True
    ):
        properties = {
            "domain": {"min": 0, "max": rows - 1, "name": name},
            "embedding_sizes": {"cardinality": rows, "dimension": _suggested_dim(rows)},
        }
        kind = {}
        if hotness > 1:
            properties["value_count"] = {"min": 1, "max": hotness}
            kind = {"is_list": True, "is_ragged": True}
        columns.append(
            ColumnSchema(name, [Tags.CATEGORICAL], properties=properties, dtype="int64", **kind)
        )
    return Schema(columns)


def _suggested_dim(rows: int) -> int:
    """NVTabular's rule."""
    return min(max(16, round(1.6 * rows**0.56)), 512)
