"""What a user writes down about tables and features: frozen, plain data.

A *spec* is a frozen dataclass that says what is wanted; the object that owns variables is built
from it later. Specs print well, compare, and go to and from plain JSON data. `spec` registers a
class by its name, which is how a nested spec finds its class again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

COMBINERS = ("sum", "mean", "sqrtn", "max", None)
PLACEMENTS = ("auto", "host")
DTYPES = ("float32", "bfloat16", "float16")

_CLASS = "class"
_specs: dict[str, type] = {}
_foreign: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {}
_field_rules: dict[str, Callable[[Any], Any]] = {}
T = TypeVar("T", bound=type)


def _short_repr(self: Any) -> str:
    shown = []
    for field in dataclasses.fields(self):
        value = getattr(self, field.name)
        required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        # An array compares elementwise: the types first.
        if required or type(value) is not type(field.default) or value != field.default:
            shown.append(f"{field.name}={value!r}")
    return f"{type(self).__name__}({', '.join(shown)})"


def spec(cls: T) -> T:
    """Registers a frozen dataclass as a spec under its class name.

    Its `repr` shows the required fields and those that differ from their default.

    Raises:
        TypeError: `cls` isn't a frozen dataclass.
        ValueError: another class has this name.

    >>> @spec
    ... @dataclasses.dataclass(frozen=True)
    ... class Hot:
    ...     rows: int
    ...     salt: int = 0
    >>> Hot(4)
    Hot(rows=4)
    >>> to_plain(Hot(4, salt=1))
    {'class': 'Hot', 'rows': 4, 'salt': 1}
    >>> from_plain({'class': 'Hot', 'rows': 4, 'salt': 1}) == Hot(4, salt=1)
    True
    """
    if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise TypeError(f"A spec is a frozen dataclass; {cls.__name__} isn't one.")
    known = _specs.get(cls.__name__)
    if known is not None and (known.__module__, known.__qualname__) != (
        cls.__module__,
        cls.__qualname__,
    ):
        raise ValueError(
            f"Two specs have the name {cls.__name__!r}: {known.__module__}.{known.__qualname__} "
            f"and {cls.__module__}.{cls.__qualname__}. Rename one."
        )
    _specs[cls.__name__] = cls
    cls.__repr__ = _short_repr  # type: ignore[method-assign]
    return cls


def foreign(
    name: str, base: type, encode: Callable[[Any], Any], decode: Callable[[Any], Any]
) -> None:
    """Lets objects of a foreign class, say a Keras regularizer, stand in specs.

    Args:
        name: what plain data call the class.
        base: instances of it and its subclasses are meant.
        encode: makes plain data of an instance.
        decode: makes an instance of these data.

    >>> import fractions
    >>> foreign("fraction", fractions.Fraction, str, fractions.Fraction)
    >>> to_plain(fractions.Fraction(1, 3))
    {'class': 'fraction', 'object': '1/3'}
    """
    _foreign[name] = (base, encode, decode)


def field_rule(field: str, rule: Callable[[Any], Any]) -> None:
    """Lets the room that knows what a field of `TableConfig` means say what it may be.

    Args:
        field: its name.
        rule: gives what the config keeps of a value, or raises ValueError.
    """
    _field_rules[field] = rule


def to_plain(value: Any) -> Any:
    """Plain JSON data for a spec, an object that `foreign` knows, an array, or a nest of them.

    Raises:
        TypeError: a value is none of these.

    >>> to_plain({'a': [1, None], 'b': FeatureConfig('f', TableConfig('t', 9, 4))})['b']['combiner']
    'mean'
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if dataclasses.is_dataclass(value) and _specs.get(type(value).__name__) is type(value):
        names = [field.name for field in dataclasses.fields(value)]
        plain = {name: to_plain(getattr(value, name)) for name in names}
        return {_CLASS: type(value).__name__, **plain}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    if isinstance(value, tuple):
        return {_CLASS: "tuple", "items": [to_plain(item) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {_CLASS: "array", "dtype": value.dtype.name, "values": value.tolist()}
    for name, (base, encode, _) in _foreign.items():
        if isinstance(value, base):
            return {_CLASS: name, "object": encode(value)}
    raise TypeError(
        f"{value!r} (a {type(value).__name__}) can't be written as plain data: use numbers, "
        "strings, specs, or Keras initializers, regularizers and constraints."
    )


def from_plain(data: Any) -> Any:
    """The value that `to_plain` made `data` of.

    Raises:
        ValueError: `data` names a class that isn't a registered spec.
    """
    if isinstance(data, Mapping):
        name = data.get(_CLASS)
        if not isinstance(name, str):
            return {key: from_plain(item) for key, item in data.items()}
        fields = {key: item for key, item in data.items() if key != _CLASS}
        if name == "tuple":
            return tuple(from_plain(item) for item in fields["items"])
        if name == "array":
            return np.array(fields["values"], fields["dtype"])
        if name in _foreign:
            _, _, decode = _foreign[name]
            return decode(fields["object"])
        if name not in _specs:
            raise ValueError(
                f"{name!r} is no known spec (known: {', '.join(sorted(_specs))}). Import the "
                "module that defines it first."
            )
        return _specs[name](**{key: from_plain(item) for key, item in fields.items()})
    if isinstance(data, list):
        return [from_plain(item) for item in data]
    return data


def same(a: Any, b: Any) -> bool:
    """Whether two specs mean the same.

    Objects of a foreign class are compared by their plain data, if they have no equality of their
    own.

    >>> same(TableConfig('item', 9, 4), TableConfig('item', 9, 4))
    True
    """
    if a is b:
        return True
    if type(a) is type(b) and type(a) in _specs.values():
        names = [field.name for field in dataclasses.fields(a)]
        return all(same(getattr(a, name), getattr(b, name)) for name in names)
    cls: Any = type(a)
    is_foreign = any(isinstance(a, base) for base, _, _ in _foreign.values())
    if is_foreign and cls.__eq__ is not object.__eq__:
        return a == b
    return to_plain(a) == to_plain(b)


@spec
@dataclasses.dataclass(frozen=True)
class TableConfig:
    """One logical table: `[rows, embedding_dim]` vectors under one name.

    Args:
        name: the table's name; tables are shared by name within one layer.
        vocabulary_size: ids are in `[0, vocabulary_size)`; None: the id space is open, and `ids`
            says how many rows there are.
        embedding_dim: length D of a vector.
        ids: which row an id has, a spec of `merlin_embeddings.ids`. None: row = id, ids out of
            range are an error.
        compression: how a vector is made of rows. None: a row is a vector.
        placement: where the rows live. "auto" and "host": in the memory of the process.
        dtype: of the rows at rest: "float32", "bfloat16" or "float16". Looked-up vectors are
            float32 before they are cast to the layer's compute dtype.
        initializer: a name, a spec of `merlin_embeddings.initializers`, a Keras initializer, or an
            array `[rows, embedding_dim]`, say trained vectors (a memory-mapped one too). Its values
            aren't part of plain data: they come back with the weights.
        regularizer: a Keras regularizer; acts on the distinct rows looked up.
        constraint: a Keras constraint; acts on the rows looked up.
        seed: of the initializer. None: drawn when the table is built.
        trainable: False freezes the rows.

    Raises:
        ValueError: a field has a value that no table can have; the message names table and field.

    >>> TableConfig("item", vocabulary_size=1000, embedding_dim=16, dtype="bfloat16")
    TableConfig(name='item', vocabulary_size=1000, embedding_dim=16, dtype='bfloat16')
    """

    name: str
    vocabulary_size: int | None
    embedding_dim: int
    ids: Any = None
    compression: Any = None
    placement: Any = "auto"
    dtype: str = "float32"
    initializer: Any = "uniform"
    regularizer: Any = None
    constraint: Any = None
    seed: int | None = None
    trainable: bool = True

    def __post_init__(self):
        _check_name("TableConfig", self.name)
        object.__setattr__(self, "dtype", getattr(self.dtype, "name", self.dtype))
        if self.vocabulary_size is not None:
            self._check_size("vocabulary_size")
        self._check_size("embedding_dim")
        self._check_ids()
        if self.compression is not None:
            self._refuse("compression", "None (a row is a vector)")
        if self.placement not in PLACEMENTS:
            self._refuse("placement", f"one of {_one_of(PLACEMENTS)}")
        if self.dtype not in DTYPES:
            self._refuse("dtype", f"one of {_one_of(DTYPES)}")
        if self.seed is not None and not _is_int(self.seed):
            self._refuse("seed", "an integer or None")
        if not isinstance(self.trainable, bool):
            self._refuse("trainable", "True or False")
        for field, rule in _field_rules.items():
            try:
                object.__setattr__(self, field, rule(getattr(self, field)))
            except ValueError as error:
                raise ValueError(f"TableConfig {self.name!r}: {error}") from None

    @property
    def rows(self) -> int:
        """How many rows the table has."""
        if self.ids is not None:
            return self.ids.rows_of(self.vocabulary_size)
        assert self.vocabulary_size is not None  # checked when the config was made
        return self.vocabulary_size

    def to_dict(self) -> dict[str, Any]:
        """This config as plain JSON data."""
        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TableConfig:
        """The config that `to_dict` made `data` of."""
        return cls(**{key: from_plain(item) for key, item in data.items() if key != _CLASS})

    def _check_size(self, field: str) -> None:
        value = getattr(self, field)
        if not _is_int(value) or value < 1:
            self._refuse(field, "a positive integer")
        object.__setattr__(self, field, int(value))

    def _check_ids(self) -> None:
        if self.ids is None:
            if self.vocabulary_size is None:
                self._refuse(
                    "vocabulary_size",
                    "a positive integer, or None together with ids= that have rows of their own, "
                    "such as ids.Modulo(rows)",
                )
            return
        if not hasattr(self.ids, "rows_of"):
            self._refuse("ids", "None or a spec of merlin_embeddings.ids, such as ids.Modulo(rows)")
        try:
            self.ids.rows_of(self.vocabulary_size)
        except ValueError as error:
            raise ValueError(f"TableConfig {self.name!r}: {error}") from None

    def _refuse(self, field: str, wanted: str) -> None:
        raise ValueError(
            f"TableConfig {self.name!r}: {field}={getattr(self, field)!r}; it must be {wanted}."
        )


@spec
@dataclasses.dataclass(frozen=True)
class FeatureConfig:
    """One feature: a bag of ids in each sample, looked up in a table and combined to one vector.

    Args:
        name: the feature's name, used in messages.
        table: its table; features may share one.
        combiner: "sum", "mean", "sqrtn" or "max" over the bag; None: no pooling, one vector an id.
        padding_id: this id (an integer, or a string for string features) has no vector: it doesn't
            count in sum, divisor or maximum.

    Raises:
        ValueError: a field has a value that no feature can have.

    >>> item = TableConfig("item", vocabulary_size=1000, embedding_dim=16)
    >>> FeatureConfig("history", item, combiner="sum").combiner
    'sum'
    """

    name: str
    table: TableConfig
    combiner: str | None = "mean"
    padding_id: int | str | None = None

    def __post_init__(self):
        _check_name("FeatureConfig", self.name)
        if not isinstance(self.table, TableConfig):
            raise ValueError(
                f"FeatureConfig {self.name!r}: table={self.table!r}; it must be a TableConfig."
            )
        check_combiner(f"FeatureConfig {self.name!r}", self.combiner)
        check_padding_id(f"FeatureConfig {self.name!r}", self.padding_id)

    def to_dict(self) -> dict[str, Any]:
        """This config, its table included, as plain JSON data."""
        return to_plain(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FeatureConfig:
        """The config that `to_dict` made `data` of."""
        return cls(**{key: from_plain(item) for key, item in data.items() if key != _CLASS})


def check_combiner(owner: str, combiner: Any) -> None:
    """Raises ValueError, naming `owner`, if `combiner` isn't one."""
    if combiner not in COMBINERS:
        raise ValueError(f"{owner}: combiner={combiner!r}; it must be one of {_one_of(COMBINERS)}.")


def check_padding_id(owner: str, padding_id: Any) -> None:
    """Raises ValueError, naming `owner`, if `padding_id` can't be an id."""
    if padding_id is None or isinstance(padding_id, str):
        return
    if not _is_int(padding_id) or not -(2**63) <= padding_id < 2**63:
        raise ValueError(
            f"{owner}: padding_id={padding_id!r}; it must be an int64, a string (for string "
            "features) or None."
        )


def is_row_count(value: Any) -> bool:
    """Whether `value` can be a number of rows: a positive integer (and no boolean)."""
    return _is_int(value) and value >= 1


def _check_name(kind: str, name: Any) -> None:
    # Keras builds paths of weight names, hence no slash.
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(f"{kind}: name={name!r}; it must be a non-empty string without '/'.")


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _one_of(values: tuple) -> str:
    return ", ".join(repr(value) for value in values)
