"""What both sides of the comparison with InputBlockV2 have in common; numpy and merlin.schema only.

One side runs in the merlin lane, the other in the main one: nothing here may import TensorFlow.
"""

import dataclasses
import zlib

import numpy as np
from merlin.schema import ColumnSchema, Schema, Tags

BATCH = 48
DOMAINS = {
    "user": ("user", 9999),
    "last": ("item", 30),
    "history": ("item", 30),
    "genres": (None, 12),
}
LISTS = ("history", "genres")
NUMBERS = ("price", "age")
VECTORS = ("image",)


@dataclasses.dataclass(frozen=True)
class Case:
    """An input block, and how it is asked for.

    Args:
        columns: of the schema, in this order.
        dim: of all tables, by column, or None: as each side infers it.
        combiner: of lists; None: they are kept.
        aggregation: "concat", "stack" or None.
        projection: the units of a dense layer for the continuous columns.
        l2: the batch's L2 factor, or factors by column.
    """

    columns: tuple[str, ...]
    dim: int | dict[str, int] | None = 8
    combiner: str | None = "mean"
    aggregation: str | None = "concat"
    projection: int | None = None
    l2: float | dict[str, float] = 0.0


EVERYTHING = ("user", "price", "last", "history", "image", "genres", "age")
CATEGORICAL = ("user", "last", "history", "genres")
CASES = {
    "scalars": Case(("user", "last"), dim=4),
    "concat": Case(EVERYTHING, dim={"user": 5, "last": 3, "history": 3, "genres": 2}),
    "inferred dims": Case(EVERYTHING, dim=None),
    "stack": Case(CATEGORICAL, aggregation="stack"),
    "stack and projection": Case((*CATEGORICAL, *NUMBERS), aggregation="stack", projection=8),
    "dict": Case(EVERYTHING, aggregation=None),
    "shared domain": Case(("history", "last")),
    "sum": Case(CATEGORICAL, combiner="sum"),
    "sqrtn": Case(CATEGORICAL, combiner="sqrtn"),
    "sequences": Case(LISTS[:1], combiner=None),
    "sequences, dict": Case(CATEGORICAL, combiner=None, aggregation=None),
    "projection": Case(EVERYTHING, projection=6),
    "continuous only": Case(NUMBERS),
    "l2": Case(EVERYTHING, l2=0.05),
    "l2 by column": Case(EVERYTHING, l2={"user": 0.5, "genres": 0.25}),
    "l2 of sequences": Case(LISTS[:1], combiner=None, l2=0.05),
}


def schema(case: Case) -> Schema:
    """The case's columns, a target and a column without a tag."""
    columns = [_column(name) for name in case.columns]
    others = [
        ColumnSchema("click", [Tags.TARGET, Tags.BINARY_CLASSIFICATION], dtype=np.int64),
        ColumnSchema("day", dtype=np.int64),
    ]
    return Schema([*columns, *others])


def batch(case: Case) -> dict[str, np.ndarray]:
    """A batch as the Merlin loader gives it: scalars `[B]`, lists in values and offsets."""
    arrays = {}
    for name in case.columns:
        draw = _random("batch", name)
        if name in LISTS:
            # Some empty, some long; ids are often the same.
            lengths = draw.integers(0, 6, size=BATCH) * draw.integers(0, 2, size=BATCH)
            most = DOMAINS[name][1]
            arrays[f"{name}__values"] = draw.integers(0, most + 1, size=lengths.sum())
            arrays[f"{name}__offsets"] = np.concatenate([[0], np.cumsum(lengths)])
        elif name in DOMAINS:
            arrays[name] = draw.integers(0, DOMAINS[name][1] + 1, size=BATCH)
        else:
            shape = (BATCH, 3) if name in VECTORS else (BATCH,)
            arrays[name] = draw.normal(size=shape).astype(np.float32)
    return arrays


def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Of a weight, or what a gradient begins with; the same wherever it is asked for."""
    return _random("values", name, *shape).normal(size=shape).astype(np.float32)


def tables(case: Case) -> dict[str, str]:
    """The name of each categorical column's table."""
    return {name: DOMAINS[name][0] or name for name in case.columns if name in DOMAINS}


def _column(name: str) -> ColumnSchema:
    if name in DOMAINS:
        table, most = DOMAINS[name]
        domain = {"min": 0, "max": most, **({"name": table} if table else {})}
        lists = {"is_list": True, "is_ragged": True} if name in LISTS else {}
        return ColumnSchema(name, [Tags.CATEGORICAL], {"domain": domain}, np.int64, **lists)
    if name in VECTORS:
        return ColumnSchema(name, [Tags.EMBEDDING], dtype=np.float32, dims=(None, 3))
    return ColumnSchema(name, [Tags.CONTINUOUS], dtype=np.float32)


def _random(*what: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(what).encode()))
