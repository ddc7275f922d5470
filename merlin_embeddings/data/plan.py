"""Which rows a process reads in an epoch, in which order, cut into which batches: numbers only.

A source is a sequence of pieces (row groups of Parquet files, partitions of a Dataset) of known
numbers of rows. An epoch puts the pieces in an order that all processes agree on; each process
reads its own stretch of the rows in that order, so that all rows are read exactly once, whatever
the sizes of the pieces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Span:
    """Rows `[start, stop)` of a piece."""

    piece: int
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Share:
    """What one of several processes reads of an epoch's rows.

    Attributes:
        start: its first row, in the order of the epoch.
        sizes: of its batches, in rows. Their number is the same in all processes, as collective
            operations need it.
    """

    start: int
    sizes: tuple[int, ...]

    @property
    def stop(self) -> int:
        """The row after its last."""
        return self.start + sum(self.sizes)

    @classmethod
    def of(
        cls, rows: int, batch_size: int, index: int, count: int, drop_remainder: bool = False
    ) -> Share:
        """The share of process `index` of `count`.

        Shares differ by at most one row. Where that would give some a batch more than others, these
        have two half batches at the end instead of a full one. With `drop_remainder` all batches
        are full, and the rows that are over are left out.

        Raises:
            ValueError: there are too few rows for each process to have a batch.

        >>> [Share.of(9, 2, index, 2) for index in (0, 1)]
        [Share(start=0, sizes=(2, 2, 1)), Share(start=5, sizes=(2, 1, 1))]
        """
        if drop_remainder:
            batches = rows // (batch_size * count)
            if batches == 0:
                raise ValueError(
                    f"{rows} rows don't fill a batch of {batch_size} in each of {count} "
                    "processes. Use a smaller batch_size, or drop_remainder=False."
                )
            return cls(index * batches * batch_size, (batch_size,) * batches)
        least, more = divmod(rows, count)
        mine = least + (index < more)
        batches = -(-(least + (more > 0)) // batch_size)
        if least < batches:
            raise ValueError(
                f"{rows} rows in batches of {batch_size} can't be shared among {count} processes, "
                "each with the same number of batches. Use drop_remainder=True, or fewer processes."
            )
        start = index * least + min(index, more)
        sizes = [batch_size] * (batches - 1)
        sizes.append(mine - sum(sizes))
        if sizes[-1] == 0:
            sizes[-2:] = [batch_size - batch_size // 2, batch_size // 2]
        return cls(start, tuple(sizes))


def spans(pieces: Sequence[int], order: Sequence[int], start: int, stop: int) -> Iterator[Span]:
    """The spans that hold rows `[start, stop)` of an epoch.

    Args:
        pieces: the rows of each piece.
        order: the order in which the epoch has them.

    >>> list(spans([4, 3], order=[1, 0], start=2, stop=5))
    [Span(piece=1, start=2, stop=3), Span(piece=0, start=0, stop=2)]
    """
    first = 0
    for piece in order:
        rows = pieces[piece]
        low, high = max(start - first, 0), min(stop - first, rows)
        if low < high:
            yield Span(int(piece), low, high)
        first += rows
        if first >= stop:
            return


def order_of(pieces: int, rng: np.random.Generator | None) -> Sequence[int]:
    """The order of an epoch: shuffled by `rng`, or as they come."""
    return range(pieces) if rng is None else rng.permutation(pieces).tolist()
