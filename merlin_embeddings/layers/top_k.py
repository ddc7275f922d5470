"""`TopK`: the items whose vectors fit a user's best."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.bags import Bags, asserted, bag_of, without_padding
from merlin_embeddings.config import is_row_count
from merlin_embeddings.ids import Identity
from merlin_embeddings.layers.base import TableLayer
from merlin_embeddings.layers.sharing import SharingLayer


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class TopK(SharingLayer):
    """The k items with the largest dot products, exactly: all items are scored, a chunk at a time.

    For evaluation, and to serve catalogues of up to some millions of items. Memory is B times
    `chunk_size` scores; of equal scores the smaller id comes first.

    Args:
        items: the layer that owns the items' table, an `Embedding` or `Embeddings`, with a row for
            each id (`ids=None`).
        k: how many.
        first: ids below are no items; with ids of NVTabular's Categorify 3: padding, null, unknown.
        chunk_size: how many items are scored at a time.
        padding_id: of `exclude`. None: the owner's, if it is an `Embedding` that has one.
        table: which table of an `Embeddings`; None where there is one.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        TypeError: `items` owns no table of this package.
        ValueError: more than there are items, ids that aren't rows, or a `k`, `first` or
            `chunk_size` that is none.

    Call arguments:
        inputs: vectors of users `[B, D]`.
        exclude: ids that a user doesn't get, such as those in the history: any kind of bags. Ids
            out of range are what they are in a lookup: an error, if the table's `ids` don't say.

    Returns:
        Scores `[B, k]` float32 in falling order, and ids `[B, k]` int64. Where fewer than k items
        are left, scores are -inf and ids -1.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> items = me.layers.Embedding(4, 1, weights=[[1.0], [4.0], [3.0], [2.0]])
    >>> scores, ids = TopK(items, k=2)(tf.constant([[10.0]]), exclude=tf.constant([[1]]))
    >>> scores.numpy().tolist(), ids.numpy().tolist()
    ([[30.0, 20.0]], [[2, 3]])
    """

    def __init__(
        self,
        items: TableLayer,
        k: int,
        first: int = 0,
        chunk_size: int = 65536,
        padding_id: int | str | None = None,
        table: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(items, table, **kwargs)
        self._require("k", k, is_row_count(k), "a positive integer")
        self._require("first", first, first == 0 or is_row_count(first), "an integer of 0 or more")
        self._require("chunk_size", chunk_size, is_row_count(chunk_size), "a positive integer")
        if not isinstance(self.table_config.ids, (Identity, type(None))):
            raise ValueError(
                f"TopK {self.name!r}: table {self.table_config.name!r} has "
                f"ids={self.table_config.ids!r}, whose rows are no ids; items to retrieve need a "
                "row each (ids=None)."
            )
        self.check_items_are_known()
        if k > self.id_map.rows - first:
            raise ValueError(
                f"TopK {self.name!r}: k={k}, but table {self.table_config.name!r} has "
                f"{max(self.id_map.rows - first, 0)} items: {self.id_map.rows} rows, from row "
                f"{first} on."
            )
        self.k, self.first, self.chunk_size = k, first, chunk_size
        self.padding_id = padding_id

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(
        self, inputs: Any, exclude: Any = None, training: bool | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Scores and ids; see the class."""
        del training
        self.check_users(inputs)
        users = tf.cast(inputs, tf.float32)
        excluded = None if exclude is None else self._excluded(exclude, users)
        count = tf.shape(users)[0]
        best = (
            tf.fill([count, self.k], -math.inf),
            tf.fill([count, self.k], tf.constant(-1, tf.int64)),
        )
        # A loop even for one chunk: a graph has the same form for every table.
        start = tf.constant(self.first, tf.int64)
        _, scores, ids = tf.while_loop(
            lambda start, *_: start < self.id_map.rows,
            lambda start, *best: (
                start + self.chunk_size,
                *self._better(users, start, best, excluded),
            ),
            (start, *best),
            shape_invariants=(start.shape, *[tf.TensorShape([None, self.k])] * 2),
        )
        return scores, tf.where(tf.math.is_inf(scores), tf.constant(-1, tf.int64), ids)

    def compute_output_spec(
        self, inputs: Any, exclude: Any = None, training: bool | None = None
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        """Shapes and dtypes of the outputs for symbolic inputs."""
        del exclude, training
        self.check_users(inputs)
        shape = (inputs.shape[0], self.k)
        return keras.KerasTensor(shape, dtype="float32"), keras.KerasTensor(shape, dtype="int64")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = ("k", "first", "chunk_size", "padding_id")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

    def _better(
        self, users: tf.Tensor, start: tf.Tensor, best: tuple, excluded: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The best k of those so far and of a chunk of items."""
        ids = tf.range(start, tf.minimum(start + self.chunk_size, self.id_map.rows))
        bags = Bags(ids, hotness=1, name=self.label)
        # Not `self.look_up`: nobody wants what a regularizer makes of the whole table.
        [vectors], _ = self.items.table_set.look_up([self.feature()], [bags], False)
        scores = tf.matmul(users, vectors, transpose_b=True)
        if excluded is not None:
            user, row = excluded
            here = tf.where((row >= start) & (row < start + self.chunk_size))[:, 0]
            at = tf.stack([tf.gather(user, here), tf.gather(row, here) - start], 1)
            gone = tf.fill(tf.shape(here), -math.inf)
            scores = tf.tensor_scatter_nd_update(scores, at, gone)
        # Those so far come first: of equal scores top_k takes the first.
        scores = tf.concat([best[0], scores], 1)
        ids = tf.concat([best[1], tf.repeat(ids[None], tf.shape(users)[0], axis=0)], 1)
        scores, at = tf.math.top_k(scores, self.k)
        return scores, tf.gather(ids, at, batch_dims=1)

    def _excluded(self, exclude: Any, users: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Pairs of user and row, `[N]` each."""
        padding = self.padding_or_items(self.padding_id)
        bags = without_padding(Bags.of(exclude, None, padding, f"{self.label}, exclude"))
        count = tf.size(bags.row_splits, tf.int64) - 1
        message = f"{self.label}: exclude and users have different batch sizes:"
        fine = tf.equal(count, tf.shape(users, tf.int64)[0])
        ids = asserted(bags.values, fine, [message, count])
        # Ids out of range are what the table's `ids` make of them: an error, none, the nearest.
        rows, _ = self.id_map.assign(ids, name=bags.name)
        return bag_of(bags), rows

    def _require(self, name: str, value: Any, fine: bool, wanted: str) -> None:
        if not fine:
            raise ValueError(f"TopK {self.name!r}: {name}={value!r}; it must be {wanted}.")
