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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import config, native
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

    def law(self, total_rows: int, dim: int) -> tuple[str, tuple[float, float]] | None:
        """What the native library knows this distribution by: its name and two numbers.

        Args:
            total_rows: R, the rows of the whole table.
            dim: D.

        Returns:
            None where it doesn't know it: values then aren't a function of (seed, row, column).
        """
        del total_rows, dim
        return None


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


@dataclass(frozen=True, eq=False, repr=False)
class FromArray(Initializer):
    """The values of an array [R, D], for example trained vectors.

    Plain data (a layer's config) hold its shape and dtype only: values that a model was trained
    from are of no use to it any more, and tables come back from the weights file. What was made
    from plain data has no array; its table starts as zeros that cost no memory, for the weights to
    be loaded into, and rows can't be reset.

    Args:
        array: [R, D] numbers, also memory-mapped. It isn't copied: don't change it.
        shape, dtype: of the array, where there is none.

    Raises:
        ValueError: an array of another rank, or of no numbers.

    >>> import numpy as np
    >>> FromArray(np.ones([1000, 16], np.float32))
    FromArray(float32 [1000, 16])
    """

    array: np.ndarray | None
    shape: tuple[int, ...] = ()
    dtype: str = ""

    def __post_init__(self) -> None:
        if self.array is not None:
            array = np.asarray(self.array)
            dtype = tf.as_dtype(array.dtype)
            if not (dtype.is_floating or dtype.is_integer):
                raise ValueError(f"FromArray: the array must hold numbers, got {array.dtype}")
            object.__setattr__(self, "array", array)
            object.__setattr__(self, "shape", array.shape)
            object.__setattr__(self, "dtype", dtype.name)
        if len(self.shape) != 2:
            raise ValueError(
                f"FromArray: the array must have two axes [rows, dim], got shape {self.shape}"
            )

    def __repr__(self) -> str:
        return f"FromArray({self.dtype} {list(self.shape)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FromArray) or self._kind != other._kind:
            return False
        if self.array is None or other.array is None or self.array is other.array:
            return True
        return np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self._kind, self._digest()))

    @property
    def _kind(self) -> tuple:
        return (tuple(self.shape), self.dtype, self.array is None)

    def _digest(self) -> float:
        """Of some 64 rows: cheap, and the same for equal arrays."""
        if self.array is None:
            return 0.0
        some = self.array[:: max(1, len(self.array) // 64)]
        return float(np.sum(some.astype(np.float64)))

    def table(self, rows: Any, dim: int, dtype: Any, seed: int, name: str) -> tf.Tensor:
        self._require_shape(rows, dim, name)
        if self.array is None:
            return Constant(0.0).table(rows, dim, dtype, seed, name)
        return native.to_huge_pages(tf.cast(tf.convert_to_tensor(self.array), dtype))

    def rows(
        self, keys: Any, dim: int, dtype: Any, seed: int, name: str, total_rows: int
    ) -> tf.Tensor:
        self._require_shape(total_rows, dim, name)
        if self.array is None:
            raise ValueError(
                f"table '{name}': its initial values were an array, which isn't saved with a "
                "model, so single rows can't be reset; write them, or make the table with "
                "initializer=array"
            )
        chosen = self.array[np.asarray(keys)]
        return tf.cast(tf.convert_to_tensor(chosen), dtype)

    def _require_shape(self, rows: Any, dim: int, name: str):
        if tuple(self.shape) != (rows, dim):
            raise ValueError(
                f"table '{name}': initial values have shape {list(self.shape)}, "
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


def as_spec(identifier: Any) -> Any:
    """What stands in a config for `identifier`: comparable, and writable as plain data.

    Args:
        identifier: what `get` takes.

    Returns:
        A `FromArray` for an array, a Keras initializer for what it makes of a dict; anything else
        as it is.

    Raises:
        ValueError: as `get` does.
    """
    found = get(identifier)
    if isinstance(found, _FromKeras) and isinstance(identifier, Mapping):
        return found.initializer
    return found if isinstance(found, FromArray) else identifier


config.foreign(
    "FromArray",
    FromArray,
    lambda given: {"shape": list(given.shape), "dtype": given.dtype},
    lambda plain: FromArray(None, tuple(plain["shape"]), plain["dtype"]),
)
config.field_rule("initializer", as_spec)
