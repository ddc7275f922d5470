"""Specs: frozen dataclasses that print well, compare, and go to and from plain JSON data.

`spec` registers a class by its name, which is how a nested spec finds its class again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

_CLASS = "class"
_specs: dict[str, type] = {}
_foreign: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {}
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


def to_plain(value: Any) -> Any:
    """Plain JSON data for a spec, an object that `foreign` knows, an array, or a nest of them.

    Raises:
        TypeError: a value is none of these.

    >>> to_plain({'a': [1, None], 'b': (2,)})
    {'a': [1, None], 'b': {'class': 'tuple', 'items': [2]}}
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
        if name == "tuple":
            return tuple(from_plain(item) for item in data["items"])
        if name == "array":
            return np.array(data["values"], data["dtype"])
        if name in _foreign:
            _, _, decode = _foreign[name]
            return decode(data["object"])
        if name not in _specs:
            raise ValueError(
                f"{name!r} is no known spec (known: {', '.join(sorted(_specs))}). Import the "
                "module that defines it first."
            )
        return _specs[name](**fields_of(data))
    if isinstance(data, list):
        return [from_plain(item) for item in data]
    return data


def fields_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the spec that `to_plain` made `data` of."""
    return {key: from_plain(item) for key, item in data.items() if key != _CLASS}


def same(a: Any, b: Any) -> bool:
    """Whether two specs mean the same.

    Objects of a foreign class are compared by their plain data, if they have no equality of their
    own.

    >>> from merlin_embeddings.config import TableConfig
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
