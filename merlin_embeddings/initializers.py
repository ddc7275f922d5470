"""Initial values of a table, as plain data.

A native initializer is a pure function of (seed, row, column): row 7 of a table has the same
values whether the whole table was filled, or row 7 alone was reset, on any number of threads.

    >>> import merlin_embeddings as me
    >>> me.initializers.get("uniform")
    Uniform()
    >>> normal = me.initializers.Normal(stddev=0.1)
    >>> values = normal.table(rows=100, dim=8, dtype="float32", seed=1, name="item")   # [100, 8]
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import native
from merlin_embeddings.config import spec


class Initializer:
    """What makes the initial values of a table of R rows and D columns."""

    def table(self, rows: int, dim: int, dtype: Any, seed: int, name: str) -> tf.Tensor:
        """Values of a whole table.

        Args:
            rows: R.
            dim: D.
            dtype: of the result: float32, bfloat16 or float16.
            seed: which of the tables that this initializer describes.
            name: the table's name, for error messages.

        Returns:
            Tensor [R, D].
        """
        raise NotImplementedError

    def rows(
        self, keys: tf.Tensor, dim: int, dtype: Any, seed: int, name: str, total_rows: int
    ) -> tf.Tensor:
        """Values of some rows; `rows(range(R), ...)` equals `table(R, ...)`.

        Args:
            keys: [N] int64, which rows.
            dim, dtype, seed, name: as in `table`.
            total_rows: R, the rows of the whole table.

        Returns:
            Tensor [N, D].
        """
        raise NotImplementedError


class _Law(Initializer):
    """A distribution that the native library knows by name and two numbers."""

    def law(self, total_rows: int, dim: int) -> tuple[str, tuple[float, float]]:
        raise NotImplementedError

    def table(self, rows: Any, dim: int, dtype: Any, seed: int, name: str) -> tf.Tensor:
        kind, params = self.law(rows, dim)
        return native.initial_table(rows, dim, tf.as_dtype(dtype), kind, params, seed, name)

    def rows(
        self, keys: Any, dim: int, dtype: Any, seed: int, name: str, total_rows: int
    ) -> tf.Tensor:
        kind, params = self.law(total_rows, dim)
        return native.initial_rows(keys, dim, tf.as_dtype(dtype), kind, params, seed, name)


def _require_finite(initializer: Initializer) -> None:
    for field, value in vars(initializer).items():
        if not math.isfinite(value):
            raise ValueError(f"{type(initializer).__name__}: {field} must be finite, got {value}")


def _require_stddev(initializer: "Normal | TruncatedNormal") -> None:
    if initializer.stddev < 0:
        raise ValueError(
            f"{type(initializer).__name__}: stddev must not be negative, got {initializer.stddev}"
        )


@spec
@dataclass(frozen=True)
class Uniform(_Law):
    """Uniform in [low, high)."""

    low: float = -0.05
    high: float = 0.05

    def __post_init__(self) -> None:
        _require_finite(self)
        if self.low > self.high:
            raise ValueError(f"Uniform: low={self.low} is above high={self.high}")

    def law(self, total_rows: int, dim: int) -> tuple[str, tuple[float, float]]:
        return "uniform", (self.low, self.high)


@spec
@dataclass(frozen=True)
class Normal(_Law):
    """Normal with the given mean and standard deviation."""

    mean: float = 0.0
    stddev: float = 0.05

    def __post_init__(self) -> None:
        _require_finite(self)
        _require_stddev(self)

    def law(self, total_rows: int, dim: int) -> tuple[str, tuple[float, float]]:
        return "normal", (self.mean, self.stddev)


@spec
@dataclass(frozen=True)
class TruncatedNormal(_Law):
    """Normal without the values more than two `stddev` away from the mean."""

    mean: float = 0.0
    stddev: float = 0.05

    def __post_init__(self) -> None:
        _require_finite(self)
        _require_stddev(self)

    def law(self, total_rows: int, dim: int) -> tuple[str, tuple[float, float]]:
        return "truncated_normal", (self.mean, self.stddev)


@spec
@dataclass(frozen=True)
class Xavier(_Law):
    """Uniform in +-sqrt(6 / (rows + dim)) (Glorot and Bengio, 2010)."""

    def law(self, total_rows: int, dim: int) -> tuple[str, tuple[float, float]]:
        limit = math.sqrt(6.0 / (total_rows + dim))
        return "uniform", (-limit, limit)


@spec
@dataclass(frozen=True)
class Constant(_Law):
    """One value everywhere. Zeros cost no memory until they are written."""

    value: float = 0.0

    def __post_init__(self) -> None:
        _require_finite(self)

    def law(self, total_rows: int, dim: int) -> tuple[str, tuple[float, float]]:
        return "constant", (self.value, 0.0)


@spec
@dataclass(frozen=True, eq=False)
class FromArray(Initializer):
    """The values of an array [R, D], for example trained vectors."""

    array: np.ndarray

    def __post_init__(self) -> None:
        array = np.asarray(self.array)
        if array.ndim != 2:
            raise ValueError(
                f"FromArray: the array must have two axes [rows, dim], got shape {array.shape}"
            )
        object.__setattr__(self, "array", array)

    def __eq__(self, other: object):
        return isinstance(other, FromArray) and np.array_equal(self.array, other.array)

    def __hash__(self):
        return hash((self.array.shape, self.array.dtype.str))

    def table(self, rows: Any, dim: int, dtype: Any, seed: int, name: str) -> tf.Tensor:
        self._require_shape(rows, dim, name)
        return native.to_huge_pages(tf.cast(tf.convert_to_tensor(self.array), dtype))

    def rows(
        self, keys: Any, dim: int, dtype: Any, seed: int, name: str, total_rows: int
    ) -> tf.Tensor:
        self._require_shape(total_rows, dim, name)
        chosen = self.array[np.asarray(keys)]
        return tf.cast(tf.convert_to_tensor(chosen), dtype)

    def _require_shape(self, rows: Any, dim: int, name: str):
        if self.array.shape != (rows, dim):
            raise ValueError(
                f"table '{name}': initial values have shape {list(self.array.shape)}, "
                f"the table is [{rows}, {dim}]"
            )


@dataclass(frozen=True)
class _FromKeras(Initializer):
    """A Keras initializer, called once for the whole table."""

    initializer: Callable[..., Any]

    def table(self, rows: Any, dim: int, dtype: Any, seed: int, name: str) -> tf.Tensor:
        # Half-precision draws of Keras are coarse, and some of its laws (orthogonal) don't exist
        # in them at all: the values are made in float32 and rounded once.
        values = self.initializer((rows, dim), dtype="float32")
        return native.to_huge_pages(tf.cast(tf.convert_to_tensor(values), dtype))

    def rows(
        self, keys: Any, dim: int, dtype: Any, seed: int, name: str, total_rows: int
    ) -> tf.Tensor:
        raise ValueError(
            f"table '{name}': its initializer {self.initializer!r} makes whole tables only, so "
            "single rows can't be reset; use one of merlin_embeddings.initializers, whose values "
            "depend on (seed, row, column)"
        )


_BY_NAME: dict[str, Callable[[], Initializer]] = {
    "uniform": Uniform,
    "random_uniform": Uniform,
    "normal": Normal,
    "random_normal": Normal,
    "truncated_normal": TruncatedNormal,
    "xavier": Xavier,
    "xavier_uniform": Xavier,
    "glorot_uniform": Xavier,
    "zeros": lambda: Constant(0.0),
    "zero": lambda: Constant(0.0),
    "ones": lambda: Constant(1.0),
    "one": lambda: Constant(1.0),
}


def get(identifier: Any) -> Initializer:
    """The initializer that `identifier` means.

    Args:
        identifier: an `Initializer`; one of the names "uniform", "normal", "truncated_normal",
            "xavier" (also "glorot_uniform"), "zeros", "ones" and the names that Keras has for
            them; an array [R, D]; anything else that `keras.initializers.get` takes, which is
            then called once with the shape of the whole table.

    Returns:
        An `Initializer`.

    Raises:
        ValueError: when nothing of that name exists.
    """
    if isinstance(identifier, Initializer):
        return identifier
    if isinstance(identifier, str) and identifier in _BY_NAME:
        return _BY_NAME[identifier]()
    if isinstance(identifier, np.ndarray) or tf.is_tensor(identifier):
        return FromArray(np.asarray(identifier))
    try:
        found = keras.initializers.get(identifier)
    except (ValueError, TypeError):
        found = None
    if not callable(found):
        raise ValueError(
            f"unknown initializer {identifier!r}: use one of {', '.join(sorted(_BY_NAME))}, an "
            "object of merlin_embeddings.initializers, a Keras initializer or an array"
        )
    return _FromKeras(found)
