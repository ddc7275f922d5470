"""What a Merlin schema says of each column, as plain data: the one place that knows its objects.

Everything is read by attribute, so that a schema of any Merlin version will do and none has to be
installed. A schema that was read back from `schema.pbtxt` has floats for the integers among its
properties; here they are integers again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from merlin_embeddings.config import spec

TARGET_TAGS = frozenset(
    [
        "target",
        "binary_classification",
        "multi_class_classification",
        "classification",
        "regression",
    ]
)
# Merlin keeps the parts of these tags.
_COMPOUND_TAGS = {
    "user_id": ("user", "id"),
    "item_id": ("item", "id"),
    "session_id": ("session", "id"),
    "text_tokenized": ("text", "tokenized"),
}


@spec
@dataclasses.dataclass(frozen=True)
class Domain:
    """The values a column may have: from `min` to `max`, both included.

    Args:
        name: columns with one domain name share a table. None: the column's own.
        min: the smallest value.
        max: the largest value.
    """

    name: str | None = None
    min: int | float | None = None
    max: int | float | None = None


@spec
@dataclasses.dataclass(frozen=True)
class EmbeddingSizes:
    """What NVTabular suggests for a column's table.

    Args:
        cardinality: how many ids there are. HashBucket's is one less than domain max + 1.
        dimension: D by `min(max(16, round(1.6 * cardinality**0.56)), 512)`.
    """

    cardinality: int
    dimension: int


@spec
@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a schema.

    Args:
        name: the column's.
        tags: sorted, in small letters; of compound tags their parts ("user", "id").
        dtype: of a value or of a list's elements, as numpy calls it; "unknown" if the schema
            doesn't say.
        is_list: whether each row has a list.
        value_count: the fewest and the most elements a list has, None where unbounded; None for
            scalars.
        domain: the values it may have.
        embedding_sizes: NVTabular's suggestion.
        num_buckets: of Categorify: how many ids, from 2 on, stand for values out of the vocabulary.
            None or 0: one.
        freq_threshold: of Categorify: values seen less often have no id of their own. 0: all have.
        max_size: of Categorify: the table's largest size. 0: no bound.
        cat_path: where Categorify wrote the values, on the machine and at the time of the fit.

    >>> column = Column("item", tags=("categorical", "id", "item"), domain=Domain(max=9))
    >>> column.kind, column.table, column.rows
    ('categorical', 'item', 10)
    """

    name: str
    tags: tuple[str, ...] = ()
    dtype: str = "unknown"
    is_list: bool = False
    value_count: tuple[int | None, int | None] | None = None
    domain: Domain | None = None
    embedding_sizes: EmbeddingSizes | None = None
    num_buckets: int | None = None
    freq_threshold: int | None = None
    max_size: int | None = None
    cat_path: str | None = None

    @property
    def kind(self) -> str:
        """What it is to a model: "target", "categorical", "continuous", "embedding" or "other".

        A target is nothing else, whatever its other tags; "embedding" is a column of vectors.
        """
        if TARGET_TAGS.intersection(self.tags):
            return "target"
        for kind in ("categorical", "continuous", "embedding"):
            if kind in self.tags:
                return kind
        return "other"

    @property
    def table(self) -> str:
        """The name of its table: the domain's, or the column's own."""
        return (self.domain and self.domain.name) or self.name

    @property
    def rows(self) -> int:
        """How many rows its table has: domain max + 1.

        HashBucket says max = number of buckets, so its tables have a row that no id asks for, in
        merlin-models as here.

        Raises:
            ValueError: there is no domain, or it has no maximum. A `schema.pbtxt` without one reads
                as 0.
        """
        if self.domain is None:
            raise ValueError(
                f"Column {self.name!r} is categorical but the schema has no domain for it, so its "
                "table has no size. Encode it with NVTabular's Categorify or HashBucket, or add "
                "properties={'domain': {'min': 0, 'max': largest id}} to its ColumnSchema."
            )
        if not self.domain.max:
            raise ValueError(
                f"Column {self.name!r}: its domain {self.table!r} has max={self.domain.max}, so "
                "its table has no size (a schema.pbtxt without a max reads as 0). Set the domain's "
                "'max' to the largest id."
            )
        if not isinstance(self.domain.max, int) or self.domain.max < 0:
            raise ValueError(
                f"Column {self.name!r}: its domain {self.table!r} has max={self.domain.max}; the "
                "largest id of a table is a positive integer."
            )
        return self.domain.max + 1

    def has(self, tag: Any) -> bool:
        """Whether it has a tag: a string, or one of `merlin.schema.Tags`.

        >>> Column("item", tags=("categorical", "id", "item")).has("item_id")
        True
        """
        text = _text(tag)
        return set(_COMPOUND_TAGS.get(text, (text,))) <= set(self.tags)


def columns(schema: Any) -> list[Column]:
    """The columns of a schema, in its order.

    Args:
        schema: a `merlin.schema.Schema`, several ColumnSchemas, or Columns.

    Raises:
        TypeError: it is no schema.
        ValueError: a property of a column is no number, or a name comes twice.
    """
    if isinstance(schema, (str, bytes, Mapping)) or not isinstance(schema, Iterable):
        raise TypeError(
            f"A schema is a merlin.schema.Schema, such as workflow.output_schema; got {schema!r}."
        )
    found: dict[str, Column] = {}
    for item in schema:
        column = item if isinstance(item, Column) else _read(item)
        if column.name in found:
            raise ValueError(f"The schema has two columns {column.name!r}.")
        found[column.name] = column
    return list(found.values())


def tagged(schema: Any, *tags: Any) -> list[Column]:
    """The columns that have one of the tags, targets too.

    >>> schema = [Column("age", tags=("continuous", "user")), Column("y", tags=("target",))]
    >>> [column.name for column in tagged(schema, "user")]
    ['age']
    """
    return [column for column in columns(schema) if any(column.has(tag) for tag in tags)]


def categorical(schema: Any) -> list[Column]:
    """The columns tagged as categorical that are no targets."""
    return _of_kind(schema, "categorical")


def continuous(schema: Any) -> list[Column]:
    """The columns tagged as continuous that are no targets."""
    return _of_kind(schema, "continuous")


def targets(schema: Any) -> list[Column]:
    """The columns tagged as a target, by "target" or by its task.

    >>> schema = [Column("click", tags=("binary_classification",)), Column("age")]
    >>> [column.name for column in targets(schema)]
    ['click']
    """
    return _of_kind(schema, "target")


def tables(schema: Any) -> dict[str, list[Column]]:
    """The categorical columns by the table they share, in the schema's order.

    Raises:
        ValueError: columns that share a domain have different maxima.

    >>> domain = Domain("item", 0, 9)
    >>> schema = [Column(name, ("categorical",), domain=domain) for name in ("viewed", "bought")]
    >>> {table: [column.name for column in shared] for table, shared in tables(schema).items()}
    {'item': ['viewed', 'bought']}
    """
    found: dict[str, list[Column]] = {}
    for column in categorical(schema):
        found.setdefault(column.table, []).append(column)
    for table, shared in found.items():
        if len({column.domain and column.domain.max for column in shared}) > 1:
            sizes = ", ".join(
                f"{column.name!r} has max {column.domain and column.domain.max}"
                for column in shared
            )
            raise ValueError(
                f"Columns of domain {table!r} share a table, so their domains must have one max: "
                f"{sizes}. Encode them together (Categorify(encode_type='joint')), or give the "
                "domains different names."
            )
    return found


def check_names(chosen: Iterable[Column]) -> None:
    """Refuses names that Keras can't give to inputs and tables.

    Raises:
        ValueError: the name of a column, or of its domain, has a slash.
    """
    for column in chosen:
        if "/" in column.name:
            raise ValueError(
                f"Column {column.name!r}: Keras has no names with '/'. Rename it in the workflow "
                "(nvtabular.ops.Rename)."
            )
        if column.kind == "categorical" and "/" in column.table:
            raise ValueError(
                f"Column {column.name!r}: its domain {column.table!r} names a table, and Keras has "
                "no names with '/'. Give the domain another name (ColumnSchema.with_properties)."
            )


def _of_kind(schema: Any, kind: str) -> list[Column]:
    return [column for column in columns(schema) if column.kind == kind]


def _read(item: Any) -> Column:
    if not hasattr(item, "name") or not hasattr(item, "properties"):
        raise TypeError(
            "A schema is a merlin.schema.Schema, such as workflow.output_schema; it has an item "
            f"{item!r} that is no ColumnSchema."
        )
    name, properties = item.name, dict(item.properties or {})
    dtype = getattr(item.dtype, "name", item.dtype) or "unknown"
    is_list = bool(item.is_list)
    return Column(
        name=name,
        tags=tuple(sorted({part for tag in item.tags for part in _parts(tag)})),
        dtype=dtype,
        is_list=is_list,
        value_count=_value_count(name, properties.get("value_count")) if is_list else None,
        domain=_domain(name, properties.get("domain"), dtype),
        embedding_sizes=_embedding_sizes(name, properties.get("embedding_sizes")),
        num_buckets=_integer(name, "num_buckets", properties.get("num_buckets")),
        freq_threshold=_integer(name, "freq_threshold", properties.get("freq_threshold")),
        max_size=_integer(name, "max_size", properties.get("max_size")),
        cat_path=properties.get("cat_path"),
    )


def _text(tag: Any) -> str:
    return str(getattr(tag, "value", tag)).lower()


def _parts(tag: Any) -> tuple[str, ...]:
    text = _text(tag)
    return _COMPOUND_TAGS.get(text, (text,))


def _value_count(name: str, count: Mapping | None) -> tuple[int | None, int | None]:
    low = _integer(name, "value_count min", (count or {}).get("min"))
    high = _integer(name, "value_count max", (count or {}).get("max"))
    return low or 0, high or None  # a file has 0 for "no bound"


def _domain(name: str, domain: Mapping | None, dtype: str) -> Domain | None:
    if not domain:
        return None
    low, high = domain.get("min"), domain.get("max")
    if "float" not in dtype:
        low, high = _integer(name, "domain min", low), _integer(name, "domain max", high)
    return Domain(domain.get("name") or None, low, high)


def _embedding_sizes(name: str, sizes: Mapping | None) -> EmbeddingSizes | None:
    cardinality = _integer(name, "cardinality", (sizes or {}).get("cardinality"))
    dimension = _integer(name, "dimension", (sizes or {}).get("dimension"))
    return EmbeddingSizes(cardinality, dimension) if cardinality and dimension else None


def _integer(name: str, what: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value:
        raise ValueError(f"Column {name!r}: {what} is {value!r} in the schema, no integer.")
    return number
