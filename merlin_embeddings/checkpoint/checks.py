"""Checks of JSON data that came out of a file: nothing in it is trusted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from merlin_embeddings.checkpoint.errors import BrokenCheckpoint

MOST = 2**63 - 1


def parse(text: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `text`.

    Raises:
        BrokenCheckpoint: it's no JSON object, a name stands twice in it, or a number isn't finite.
    """
    try:
        data = json.loads(
            text.decode("utf-8"), object_pairs_hook=_without_twins, parse_constant=_refuse
        )
    except (ValueError, RecursionError) as error:
        raise BrokenCheckpoint(f"{what} is no JSON that can be read: {error}") from None
    return mapping(data, what)


def mapping(value: Any, what: str) -> dict[str, Any]:
    """`value`, a dict."""
    if not isinstance(value, dict):
        raise BrokenCheckpoint(f"{what} must be an object, not {_shown(value)}")
    return value


def listing(value: Any, what: str) -> list[Any]:
    """`value`, a list."""
    if not isinstance(value, list):
        raise BrokenCheckpoint(f"{what} must be a list, not {_shown(value)}")
    return value


def text(value: Any, what: str) -> str:
    """`value`, a string."""
    if not isinstance(value, str):
        raise BrokenCheckpoint(f"{what} must be a string, not {_shown(value)}")
    return value


def flag(value: Any, what: str) -> bool:
    """`value`, a bool."""
    if not isinstance(value, bool):
        raise BrokenCheckpoint(f"{what} must be true or false, not {_shown(value)}")
    return value


def integer(value: Any, what: str, lowest: int = 0, highest: int = MOST) -> int:
    """`value`, an integer in `[lowest, highest]`."""
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise BrokenCheckpoint(
            f"{what} must be an integer in {lowest}..{highest}, not {_shown(value)}"
        )
    return value


def number(value: Any, what: str) -> float:
    """`value`, a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BrokenCheckpoint(f"{what} must be a number, not {_shown(value)}")
    return float(value)


def span(value: Any, what: str) -> tuple[int, int]:
    """`value`, a list [start, stop] with 0 <= start <= stop."""
    pair = listing(value, what)
    if len(pair) != 2:
        raise BrokenCheckpoint(f"{what} must be [start, stop], not {_shown(value)}")
    start = integer(pair[0], f"{what}, start")
    return start, integer(pair[1], f"{what}, stop", lowest=start)


def lengths(value: Any, what: str) -> tuple[int, ...]:
    """`value`, a list of lengths."""
    return tuple(integer(item, what) for item in listing(value, what))


def optional(check: Callable[..., Any], value: Any, what: str) -> Any:
    """None, or what `check` says."""
    return None if value is None else check(value, what)


def only(data: Mapping[str, Any], needed: set[str], what: str) -> None:
    """Raises BrokenCheckpoint unless `data` has all the names that are needed."""
    missing = needed - set(data)
    if missing:
        raise BrokenCheckpoint(f"{what} lacks {', '.join(sorted(missing))}")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twin[:80]!r} stands twice in one object")
    return data


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
