"""What a compressed table is: a vector is composed of several rows of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from merlin_embeddings import config, native
from merlin_embeddings.tables.request import Request


class Compression(Protocol):
    """What stands in `TableConfig.compression`: a frozen dataclass registered by `config.spec`.

    A table's weight, its optimizer slots and its Entries are rows of parameters. The vector of an
    id is composed of several of them before anything is pooled, so that every combiner does with
    the composed vectors what it does with rows.
    """

    def shape(self, dim: int) -> tuple[int, int]:
        """Rows and columns of the parameters of a table of vectors of length `dim`.

        Raises:
            ValueError: there are no such vectors.
        """

    def hashed(self) -> Hashed:
        """Which parameters an id has."""

    def parts(self, request: Request, lines: tf.Tensor) -> list[Request]:
        """The lookups of parameters that a lookup is made of.

        Args:
            request: N lookups of composed vectors.
            lines: `[N * hashes]`, the parameters of each, side by side; -1 for "no vector".
        """

    def finish(self, request: Request, vectors: Sequence[tf.Tensor]) -> tf.Tensor:
        """The result of a lookup, of the results of its parts."""


class Hashed(NamedTuple):
    """The rows of parameters that make a vector: so many hashes of the id's number.

    Attributes:
        rows: of the parameters.
        hashes: of an id.
        salt: of the hashes.
    """

    rows: int
    hashes: int
    salt: int


class Lines(NamedTuple):
    """The route of a part; see `Request`."""

    lines: tf.Tensor
    row_splits: tf.Tensor | None
    hotness: int | None
    weights: tf.Tensor | None
    strict: bool = False


def lines_of(compressions: Sequence[Any], rows: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """The parameters of rows, for F lookups in one native call.

    Args:
        compressions: F of them.
        rows: `[N_f]` int64, numbers of ids; -1 for "no vector".

    Returns:
        F tensors `[N_f * hashes_f]`.
    """
    hashed = [compression.hashed() for compression in compressions]
    return native.hash_rows(
        rows,
        [one.rows for one in hashed],
        [one.salt for one in hashed],
        [one.hashes for one in hashed],
    )


def check_hashed(spec: Any) -> None:
    """Raises ValueError, naming the field, unless rows and salt can be those of a spec."""
    name = f"tables.{type(spec).__name__}"
    if not config.is_row_count(spec.rows) or spec.rows >= 2**63:
        raise ValueError(f"{name}: rows={spec.rows!r}; it must be a positive integer.")
    if not config.is_int(spec.salt) or not -(2**63) <= spec.salt < 2**63:
        raise ValueError(f"{name}: salt={spec.salt!r}; it must be an int64.")


def expand(requests: Sequence[Request]) -> list[list[Request]]:
    """The lookups of rows that lookups are made of: themselves, or parts of compressed ones."""
    compressed = [request for request in requests if request.compression is not None]
    lines: dict[int, tf.Tensor] = {}
    if compressed:
        found = lines_of(
            [request.compression for request in compressed],
            [request.route.lines for request in compressed],
        )
        lines = {id(request): one for request, one in zip(compressed, found, strict=True)}
    return [
        [request]
        if request.compression is None
        else request.compression.parts(request, lines[id(request)])
        for request in requests
    ]


def part(request: Request, route: Lines, combiner: str | None) -> Request:
    """A lookup of parameters for a lookup of composed vectors."""
    name = f"{request.name} (each id several times, {type(request.compression).__name__})"
    return Request(request.table, route, combiner, name)
