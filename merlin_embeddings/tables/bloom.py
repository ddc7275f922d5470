"""`Bloom`: a vector is the sum, or the mean, of several hashed rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from merlin_embeddings import config
from merlin_embeddings.tables.compression import Hashed, Lines, check_hashed, part
from merlin_embeddings.tables.largest import largest
from merlin_embeddings.tables.request import Request

COMBINES = ("sum", "mean")


@config.spec
@dataclasses.dataclass(frozen=True)
class Bloom:
    """A vector is the sum or the mean of `hashes` rows that independent hashes give the id.

    Ids share rows, but hardly ever all of them: of n ids in m rows, `n * k! / m**k` others have the
    very rows of an id with k hashes, and `n / m` with one (Serrà and Karatzoglou, "Getting Deep
    Recommenders Fit: Bloom Embeddings for Sparse Binary Input/Output Networks", RecSys 2017).

    The vector is composed for each id before a bag is pooled: a mean divides by the number of ids
    (by the sum of their weights), and a maximum is that of the composed vectors. It takes ids of a
    `vocabulary_size`, or any (`vocabulary_size=None`). Rows, slots and Entries of the table are
    those of the parameters `[rows, embedding_dim]`, and so is what the initializer fills.

    Hash k of the row that `ids` give an id is `ids.Hash(rows, salt=XXH64(k, seed=salt))`; of an
    open id space that row is `ids.Hash(2**63 - 1)` of the id.

    Args:
        rows: of the parameters.
        hashes: rows that make a vector.
        combine: "sum" or "mean".
        salt: of the hashes: any int64.

    Raises:
        ValueError: a field has a value that it can't have.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> layer = me.layers.Embedding(None, 8, compression=me.tables.Bloom(1000), combiner="mean")
    >>> layer(tf.constant([["Rome", "Oslo"]])).shape, layer.embeddings.shape
    (TensorShape([1, 8]), TensorShape([1000, 8]))
    """

    rows: int
    hashes: int = 2
    combine: str = "sum"
    salt: int = 0

    def __post_init__(self):
        check_hashed(self)
        if not config.is_row_count(self.hashes):
            raise ValueError(
                f"tables.Bloom: hashes={self.hashes!r}; it must be a positive integer."
            )
        if self.combine not in COMBINES:
            raise ValueError(f"tables.Bloom: combine={self.combine!r}; it must be 'sum' or 'mean'.")

    def shape(self, dim: int) -> tuple[int, int]:
        """`(rows, dim)`."""
        return self.rows, dim

    def hashed(self) -> Hashed:
        """`hashes` rows an id."""
        return Hashed(self.rows, self.hashes, self.salt)

    def parts(self, request: Request, lines: tf.Tensor) -> list[Request]:
        """One lookup, in which a bag has the rows of all of its ids.

        Sums need no more than that: what a mean or sqrtn divides by is put right by `finish`.
        """
        route, combiner, hashes = request.route, request.combiner, self.hashes
        if combiner in (None, "max"):
            return [part(request, Lines(lines, None, hashes, None), self.combine)]
        splits, weights = route.row_splits, route.weights
        together = Lines(
            lines,
            None if splits is None else splits * hashes,
            None if route.hotness is None else route.hotness * hashes,
            None if weights is None else tf.repeat(weights, hashes),
        )
        return [part(request, together, combiner)]

    def finish(self, request: Request, vectors: Sequence[tf.Tensor]) -> tf.Tensor:
        """What was looked up, times what several rows an id make too much or too little of it."""
        [found] = vectors
        if request.combiner is None:
            return found
        if request.combiner == "max":
            return largest(found, request.route)
        # Of h rows an id: a mean divided by h times the weights, sqrtn by the root of h times their
        # squares.
        divided = {"sum": 1.0, "mean": self.hashes, "sqrtn": math.sqrt(self.hashes)}
        wanted = self.hashes if self.combine == "mean" else 1.0
        factor = divided[request.combiner] / wanted
        return found if factor == 1 else found * factor
