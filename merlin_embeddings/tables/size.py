"""How large a file of Keras's becomes, said before it is written."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from merlin_embeddings import compat

LARGE = 2 << 30


def say_size(tables: Mapping[str, Sequence[Any]], what: str = "tables") -> None:
    """Warns where more than 2 GiB are about to be written.

    Args:
        tables: variables by the name of the table that they belong to.
        what: what messages call them.
    """
    sizes = {name: sum(map(_bytes, variables)) for name, variables in tables.items()}
    total = sum(sizes.values())
    if total <= LARGE:
        return
    parts = ", ".join(f"'{name}' {size / 2**30:.1f} GiB" for name, size in sizes.items())
    warnings.warn(
        f"{total / 2**30:.1f} GiB of {what} go into a file of Keras's ({parts}), which takes "
        "minutes and several times the memory. `me.save` streams them; inside of "
        "`with me.saving.tables_apart(model, folder):` the file refers to that",
        stacklevel=3,
    )


def _bytes(variable: Any) -> int:
    raw = compat.raw_variable(variable)
    return math.prod(raw.shape) * raw.dtype.size
