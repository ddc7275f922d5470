"""`SampledSoftmax`: which of all items comes next, learned against a few of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.bags import Bags, asserted
from merlin_embeddings.layers import flatten, symbolic
from merlin_embeddings.layers.base import TableLayer
from merlin_embeddings.layers.samplers import InBatch, Sampler
from merlin_embeddings.layers.sharing import SharingLayer
from merlin_embeddings.tables import MovingTable


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class SampledSoftmax(SharingLayer):
    """Logits of each user's positive item and of sampled negatives, for retrieval.

    An item's logit is the dot product of the user's vector and the item's, minus the logarithm of
    how often the sampler's negatives are expected to have the item ("log-Q correction": Jean et
    al., 2015; Yi et al., 2019): without it popular items, which are drawn more often, would be
    pushed down. Negatives that are a sample's own positive ("accidental hits") are masked.

    The positive is class 0: `keras.losses.SparseCategoricalCrossentropy(from_logits=True)` with
    zeros as targets makes the loss. It is that of `tf.nn.sampled_softmax_loss` without biases. With
    `samplers.Uniform` and as many negatives as items it is the full softmax.

    Positives and negatives are one native lookup; the table's gradient has the rows looked up only.

    Args:
        items: the layer that owns the items' table, an `Embedding` or `Embeddings`.
        sampler: one of `layers.samplers`: `Uniform`, `LogUniform`, `Unigram` or `InBatch`. For a
            table whose rows move from id to id, `InBatch()`.
        temperature: dot products are divided by it.
        table: which table of an `Embeddings`; None where there is one.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        TypeError: `items` owns no table of this package, or `sampler` is no sampler.
        ValueError: more negatives than items, counts for another number of rows, an unknown table,
            or a temperature that isn't above 0.

    Call arguments:
        inputs: vectors of users `[B, D]`.
        positives: an item id for each, `[B]` or `[B, 1]`.
        scores: an integer in `[0, 2**32)` for each positive, of its shape, for a table whose `ids`
            have the policy `Custom`.

    Returns:
        `[B, 1 + S]` float32: the positive's logit, then those of the S negatives (with `InBatch`
        the distinct positives of the batch).

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> items = me.layers.Embedding(1000, 8)
    >>> user = me.layers.UserFromItems(items)(tf.constant([[1, 2, 3], [4, 5, 6]]))
    >>> layer = me.layers.SampledSoftmax(items, me.layers.samplers.LogUniform(20))
    >>> layer(user, tf.constant([7, 8])).shape
    TensorShape([2, 21])
    """

    def __init__(
        self,
        items: TableLayer,
        sampler: Sampler,
        temperature: float = 1.0,
        table: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(items, table, **kwargs)
        if not isinstance(sampler, Sampler):
            raise TypeError(
                f"SampledSoftmax {self.name!r}: sampler={sampler!r}; it must be one of "
                "layers.samplers, such as samplers.LogUniform(100)."
            )
        if not temperature > 0:
            raise ValueError(
                f"SampledSoftmax {self.name!r}: temperature={temperature!r}; it must be above 0."
            )
        self.check_items_are_known()
        if self.items.table_set.moves(self.table_config.name):
            self._check_sampler_of_moving(sampler)
        sampler.check(self.id_map.rows, self.label)
        self.sampler, self.temperature = sampler, temperature

    def build(self, input_shape: Any = None) -> None:
        """Builds the owner, if nobody has, and the sampler."""
        super().build(input_shape)
        if not self.sampler.built:
            with tf.name_scope(self.sampler.name):
                self.sampler.build_for(self.id_map.rows)

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(
        self, inputs: Any, positives: Any, training: bool | None = None, scores: Any = None
    ) -> tf.Tensor:
        """Logits of positives and negatives; see the class."""
        self._check(inputs, positives)
        if not self.items.table_set.exist:
            positives = flatten.as_integers(positives)  # Keras may say float32, see UserFromItems
        else:
            self._follow_rows()
        rows = self.rows_of(Bags.of(positives, None, None, self.label, scores), training)
        batch_size = tf.size(rows)
        negatives = tf.stop_gradient(self.sampler.sample(rows, bool(training)))
        vectors = self.look_up_rows(tf.concat([rows, negatives], 0), training)
        users = tf.cast(inputs, tf.float32) / self.temperature
        of_positives = tf.reduce_sum(users * vectors[:batch_size], 1)
        of_negatives = tf.matmul(users, vectors[batch_size:], transpose_b=True)
        log_q = self.sampler.log_expected_count(tf.concat([rows, negatives], 0), batch_size)
        log_q = self._checked(rows, log_q, batch_size)
        # Nothing corrects a positive that has no vector (yet): its logit is 0.
        log_q = tf.where(tf.concat([rows, negatives], 0) < 0, 0.0, log_q)
        of_positives -= log_q[:batch_size]
        of_negatives -= log_q[batch_size:]
        hits = rows[:, None] == negatives
        of_negatives = tf.where(hits, tf.float32.min, of_negatives)
        return tf.concat([of_positives[:, None], of_negatives], 1)

    def compute_output_spec(
        self, inputs: Any, positives: Any, training: bool | None = None, scores: Any = None
    ) -> keras.KerasTensor:
        """Shape and dtype of the output for symbolic inputs."""
        del training
        self._check(inputs, positives)
        symbolic.check(self.feature(), self.id_map, positives, None, scores)
        sampled = getattr(self.sampler, "num_sampled", None)
        width = None if sampled is None else 1 + sampled
        return keras.KerasTensor((inputs.shape[0], width), dtype="float32")

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "sampler": keras.layers.serialize(self.sampler),
            "temperature": self.temperature,
        }

    @classmethod
    def _parts_from(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"sampler": keras.layers.deserialize(config["sampler"])}

    def _follow_rows(self) -> None:
        """Has the sampler forget a row when the row forgets its id."""
        table = self.items.table_set.tables[self.table_config.name]
        if isinstance(table, MovingTable):
            for variable in self.sampler.by_row:
                table.follow(variable, 0)

    def _check_sampler_of_moving(self, sampler: Sampler) -> None:
        if not isinstance(sampler, InBatch) or not sampler.estimated:
            raise ValueError(
                f"SampledSoftmax {self.name!r}: {type(sampler).__name__} knows items by their "
                f"rows, but table {self.table_config.name!r} has ids={self.table_config.ids!r}, "
                "whose rows move from id to id; use samplers.InBatch() without counts."
            )

    def _check(self, users: Any, positives: Any) -> None:
        self.check_users(users)
        shape = tf.TensorShape(getattr(positives, "shape", None))
        if isinstance(positives, Mapping) or shape.rank not in (1, 2) or shape[1:] not in ([], [1]):
            raise ValueError(
                f"SampledSoftmax {self.name!r}: positives have shape {shape}; they must be [B] or "
                "[B, 1], one item a user."
            )
        if not tf.TensorShape(users.shape)[:1].is_compatible_with(shape[:1]):
            raise ValueError(
                f"SampledSoftmax {self.name!r}: {users.shape[0]} users and {shape[0]} positives; "
                "give one item a user."
            )

    def _checked(self, rows: tf.Tensor, log_q: tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
        """`log_q`, once it is known that all positives may be drawn."""
        never = tf.boolean_mask(rows, tf.math.is_inf(log_q[:batch_size]))
        message = (
            f"{self.label}: {type(self.sampler).__name__} never draws these positives (below "
            "first=, or of count 0), so that nothing corrects them; leave them out, or let them be "
            "drawn:"
        )
        return asserted(log_q, tf.equal(tf.size(never), 0), [message, never])
