"""What a schema says of values, held against the values themselves.

Checks are vectorised, one pass over the ids: negative ids read as unsigned numbers are the largest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from merlin_embeddings.data.columns import Column


@dataclasses.dataclass(frozen=True)
class Place:
    """Where values come from.

    Attributes:
        source: a file, say.
        row: of the first value, counted from 0 in that source.
    """

    source: str
    row: int

    def at(self, offset: int) -> str:
        """The row `offset` further on, in words."""
        return f"row {self.row + offset} of {self.source}"


@dataclasses.dataclass(frozen=True)
class Rule:
    """What must be true of a column.

    Attributes:
        column: its name.
        domain: the name of the domain of its ids.
        most: the largest id; None: any value will do.
        lengths: the fewest and the most elements of a list; None where unbounded.
    """

    column: str
    domain: str
    most: int | None = None
    lengths: tuple[int | None, int | None] = (None, None)

    def check_ids(self, ids: np.ndarray, place: Place, offsets: np.ndarray | None = None) -> None:
        """Raises ValueError if an id isn't in `[0, most]`.

        Args:
            ids: [N] of any integer dtype.
            place: of the first row.
            offsets: [rows + 1], where the lists of rows begin in `ids`; None: an id a row.
        """
        if self.most is None or not ids.size or ids.dtype.kind not in "iu":
            return
        unsigned = ids if ids.dtype.kind == "u" else ids.view(f"u{ids.dtype.itemsize}")
        if unsigned.max() <= self.most:
            return
        wrong = int(np.flatnonzero(unsigned > self.most)[0])
        row = wrong if offsets is None else int(np.searchsorted(offsets, wrong, side="right")) - 1
        raise ValueError(
            f"Column {self.column!r}, {place.at(row)}: id {ids[wrong]} is not in [0, {self.most}], "
            f"the domain {self.domain!r} of the schema. Were rows and schema written by the same "
            "workflow? Else give the schema of the rows, or fit again."
        )

    def check_lengths(self, offsets: np.ndarray, place: Place) -> None:
        """Raises ValueError if a list is longer or shorter than the schema says.

        Args:
            offsets: [rows + 1].
            place: of the first row.
        """
        low, high = self.lengths
        if (not low and high is None) or len(offsets) < 2:
            return
        lengths = np.diff(offsets)
        wrong = lengths < (low or 0)
        if high is not None:
            wrong |= lengths > high
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            remedy = "Cut lists in the workflow (ListSlice), or correct value_count."
            if lengths[row] < (low or 0):
                # NVTabular 23.8 says in the schema that it pads, but on a CPU doesn't.
                remedy = (
                    "Lists needn't be padded here: leave out ListSlice(pad=True), which pads "
                    "nothing on a CPU, or correct value_count; check=False takes them as they are."
                )
            raise ValueError(
                f"Column {self.column!r}, {place.at(row)}: a list of {lengths[row]} elements; the "
                f"schema says value_count min={low}, max={high}. {remedy}"
            )


def rules(columns: Iterable[Column]) -> dict[str, Rule]:
    """The rules of columns by name, those without one left out.

    Raises:
        ValueError: a domain of ids has no maximum.
    """
    found = {}
    for column in columns:
        most = None
        if column.kind == "categorical" and column.domain is not None and "int" in column.dtype:
            most = column.rows - 1
        lengths = column.value_count or (None, None)
        if most is not None or lengths != (None, None):
            found[column.name] = Rule(column.name, column.table, most, lengths)
    return found
