"""What several configs check of their fields."""

from __future__ import annotations

from typing import Any

import numpy as np

# Of a bag.
ENDS = ("first", "last")


def is_row_count(value: Any) -> bool:
    """Whether `value` can be a number of rows: a positive integer (and no boolean)."""
    return is_int(value) and value >= 1


def is_int(value: Any) -> bool:
    """Whether `value` is an integer (and no boolean)."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_name(kind: str, name: Any) -> None:
    """Raises ValueError, naming the kind of config, if `name` can't be its name."""
    # Keras builds paths of weight names, hence no slash.
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(f"{kind}: name={name!r}; it must be a non-empty string without '/'.")


def one_of(values: tuple) -> str:
    """What a message calls a choice."""
    return ", ".join(repr(value) for value in values)
