"""`DoubleHash`: a vector is the sum of two hashed rows, or one behind the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from merlin_embeddings import config
from merlin_embeddings.tables.bloom import Bloom
from merlin_embeddings.tables.compression import Hashed, Lines, check_hashed, part
from merlin_embeddings.tables.request import Request

COMBINES = ("sum", "concat")


@config.spec
@dataclasses.dataclass(frozen=True)
class DoubleHash:
    """A vector is made of the two rows that two independent hashes give the id.

    Two ids have one vector only where both hashes meet, as `1 / rows**2` of all pairs do in place
    of `1 / rows` (Zhang et al., "Model Size Reduction Using Frequency Based Double Hashing for
    Recommender Systems", RecSys 2020; frequent ids, which have rows of their own there, are
    composed as all others here).

    The vector is composed for each id before a bag is pooled. Rows, slots and Entries of the table
    are those of the parameters: `[rows, embedding_dim]`, for "concat" `[rows, embedding_dim / 2]`.
    It takes ids of a `vocabulary_size`, or any (`vocabulary_size=None`).

    Args:
        rows: of the parameters.
        combine: "sum": as `Bloom(rows, hashes=2)`; "concat": half of the vector from each row.
        salt: of the hashes: any int64.

    Raises:
        ValueError: a field has a value that it can't have.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> halves = me.tables.DoubleHash(1000, combine="concat")
    >>> layer = me.layers.Embedding(None, 8, compression=halves)
    >>> layer(tf.constant([17, -2])).shape, layer.embeddings.shape
    (TensorShape([2, 8]), TensorShape([1000, 4]))
    """

    rows: int
    combine: str = "sum"
    salt: int = 0

    def __post_init__(self):
        check_hashed(self)
        if self.combine not in COMBINES:
            raise ValueError(
                f"tables.DoubleHash: combine={self.combine!r}; it must be 'sum' or 'concat'."
            )

    def shape(self, dim: int) -> tuple[int, int]:
        """`(rows, dim)`, or half of the columns for "concat".

        Raises:
            ValueError: an odd `dim` has no halves.
        """
        if self.combine == "sum":
            return self.rows, dim
        if dim % 2:
            raise ValueError(
                f"tables.DoubleHash(combine='concat') makes a vector of two halves; "
                f"embedding_dim={dim} is odd."
            )
        return self.rows, dim // 2

    def hashed(self) -> Hashed:
        """Two rows an id."""
        return Hashed(self.rows, 2, self.salt)

    def parts(self, request: Request, lines: tf.Tensor) -> list[Request]:
        """For "concat" a lookup a half: pooling goes column by column, whatever the combiner."""
        if self.combine == "sum":
            return self._sum().parts(request, lines)
        route = request.route
        halves = tf.unstack(tf.reshape(lines, [-1, 2]), axis=1)
        return [
            part(
                request,
                Lines(half, route.row_splits, route.hotness, route.weights),
                request.combiner,
            )
            for half in halves
        ]

    def finish(self, request: Request, vectors: Sequence[tf.Tensor]) -> tf.Tensor:
        """The sum, or the halves one behind the other."""
        if self.combine == "sum":
            return self._sum().finish(request, vectors)
        return tf.concat(vectors, 1)

    def _sum(self) -> Bloom:
        return Bloom(self.rows, 2, "sum", self.salt)
