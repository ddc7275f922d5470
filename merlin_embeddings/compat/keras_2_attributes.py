"""Attributes of optimizers as Keras 2's callbacks and loops expect them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf


class Settable(float):
    """A number that Keras 2's callbacks read and set as if it were a variable.

    Args:
        value: of the number.
        setter: of another value.
    """

    dtype = tf.float32
    _setter: Callable[[float], None]

    def __new__(cls, value: Any, setter: Callable[[float], None]) -> Settable:
        """As floats are made."""
        number = super().__new__(cls, value)
        number._setter = setter
        return number

    def numpy(self) -> np.float32:
        """The number."""
        return np.float32(self)

    def assign(self, value: Any) -> None:
        """Hands another value to where the number comes from."""
        self._setter(float(value))


def settable(value: Any, setter: Callable[[float], None]) -> Any:
    """A learning rate that isn't a variable, for callbacks; in graphs, as it is."""
    if not tf.executing_eagerly():
        return value
    return Settable(float(value), setter)


class CallableList(list):
    """A list that may be called, since Keras' optimizers once had a method `variables`."""

    def __call__(self) -> list:
        return self
