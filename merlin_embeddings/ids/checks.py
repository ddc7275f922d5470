"""What the specs of several stateful maps check of their fields."""

from __future__ import annotations

from typing import Any

from merlin_embeddings import config
from merlin_embeddings.ids import policies


def check_range(spec: Any, field: str, low: int, high: int) -> None:
    """Keeps a field as a Python integer, or raises ValueError if it isn't one in [low, high]."""
    value = getattr(spec, field)
    if not config.is_int(value) or not low <= value <= high:
        raise ValueError(
            f"ids.{type(spec).__name__}: {field}={value!r}; it must be an integer in "
            f"[{low}, {high}]."
        )
    object.__setattr__(spec, field, int(value))


def set_policy(spec: Any, field: str) -> None:
    """Keeps a field as the policy that it means, or raises ValueError."""
    try:
        policy = policies.get(getattr(spec, field))
    except ValueError as error:
        raise ValueError(f"ids.{type(spec).__name__}: {field}: {error}") from None
    object.__setattr__(spec, field, policy)
