"""`UserFromItems`: a user's vector from the items that the user has met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings.bags import Bags, asserted, check_like, flat_weights
from merlin_embeddings.config import is_row_count
from merlin_embeddings.layers import flatten, symbolic
from merlin_embeddings.layers import pooling as poolings
from merlin_embeddings.layers.base import TableLayer
from merlin_embeddings.layers.history import History, ItemVectors
from merlin_embeddings.layers.sharing import Lookup, SharingLayer

_PAIR = ("__values", "__offsets")


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class UserFromItems(SharingLayer):
    """Turns histories of items into vectors of users, by the items' own table.

    There is no table of users (Covington et al., 2016, "Deep Neural Networks for YouTube
    Recommendations"): a user is the pool of what they have met, so that a new user has a vector
    after the first item, and memory doesn't grow with the number of users. Mean and
    recency-weighted pools are one native lookup; attention looks the items up one by one, scores
    their vectors and pools these.

    Args:
        items: the layer that owns the items' table, an `Embedding` or `Embeddings`. Weights,
            gradients and files stay with it.
        pooling: "mean", or a `Pooling`: `RecencyWeighted`, `AttentionPooling` for retrieval,
            `TargetAttention` for ranking.
        table: which table of an `Embeddings`; None where there is one.
        max_length: only so many items of a history are looked up; None: all.
        keep: which ones those are: the "last" or the "first". Histories are in the order of time,
            the most recent item last.
        padding_id: this id is no item. None: the owner's, if it is an `Embedding` that has one.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        TypeError: `items` owns no table of this package.
        ValueError: an unknown pooling, table, `max_length` or `keep`.

    Call arguments:
        inputs: item ids of each user, integers or strings: `[B, L]`, ragged `[B, None]`, sparse
            `[B, L]`, `[B]` (one item each), `Bags` or their tensors, or a dict of Merlin's pair
            `x__values`, `x__offsets`.
        weights: a number for each item, of the kind and shape of `inputs`; multiplies what the
            pooling says.
        ages: the same: how long ago each item was met. For poolings that need them, no others.
        query: `[B, D]`, the candidates' vectors, such as `items(candidates)`. For poolings that
            need it, no others.
        scores: an integer in `[0, 2**32)` for each item, of the kind and shape of `inputs`, for a
            table whose `ids` have the policy `Custom`.

    Returns:
        `[B, D]` in the layer's compute dtype. An empty history is zeros: what follows (a dense
        layer's bias) says what a user without history likes.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> items = me.layers.Embedding(4, 2, weights=[[0, 0], [2, 0], [0, 2], [4, 4]], padding_id=0)
    >>> user = me.layers.UserFromItems(items)
    >>> user(tf.constant([[1, 2, 0], [3, 0, 0], [0, 0, 0]])).numpy().tolist()
    [[1.0, 1.0], [4.0, 4.0], [0.0, 0.0]]
    >>> [weight.name for weight in user.weights]  # the items'
    ['embeddings']
    """

    def __init__(
        self,
        items: TableLayer,
        pooling: Any = "mean",
        table: str | None = None,
        max_length: int | None = None,
        keep: str = "last",
        padding_id: int | str | None = None,
        **kwargs: Any,
    ):
        super().__init__(items, table, **kwargs)
        self.pooling = poolings.get(pooling)
        if max_length is not None and not is_row_count(max_length):
            raise ValueError(
                f"UserFromItems {self.name!r}: max_length={max_length!r}; it must be a positive "
                "integer or None."
            )
        if keep not in ("first", "last"):
            raise ValueError(
                f"UserFromItems {self.name!r}: keep={keep!r}; it must be 'first' or 'last'."
            )
        self.max_length, self.keep, self.padding_id = max_length, keep, padding_id

    def build(self, input_shape: Any = None) -> None:
        """Builds the owner, if nobody has, and the pooling."""
        super().build(input_shape)
        if not self.pooling.built:
            with tf.name_scope(self.pooling.name):
                self.pooling.build_for(self.table_config.embedding_dim)

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(
        self,
        inputs: Any,
        weights: Any = None,
        ages: Any = None,
        query: Any = None,
        training: bool | None = None,
        scores: Any = None,
    ) -> tf.Tensor:
        """Vectors of users; see the class."""
        inputs = _without_names(inputs)
        self._check(ages, query)
        if not self.items.table_set.exist:
            # Keras asks for shapes, and says float32 where it doesn't know the dtype of inputs.
            inputs = flatten.as_integers(inputs)
        bags = Bags.of(inputs, weights, self.padding_or_items(self.padding_id), self.label, scores)
        singles = ItemVectors(lambda bags: self.look_up_singles(bags, training))
        history = History(
            bags,
            singles,
            None if ages is None else self._flat_ages(inputs, bags, ages),
            None if query is None else self._flat_query(query, bags),
        )
        if self.max_length is not None:
            history = history.truncated(self.max_length, self.keep)
        weighed = self.pooling.weigh(history)
        vectors = singles.pooled(weighed, self.pooling.combiner)
        if vectors is None:
            [vectors] = self.look_up([Lookup(weighed, self.pooling.combiner)], training)
        return bags.expand(tf.cast(vectors, self.compute_dtype))

    def compute_output_spec(
        self,
        inputs: Any,
        weights: Any = None,
        ages: Any = None,
        query: Any = None,
        training: bool | None = None,
        scores: Any = None,
    ) -> keras.KerasTensor:
        """Shape and dtype of the output for symbolic inputs."""
        del training
        inputs = _without_names(inputs)
        feature = self.feature("mean")
        symbolic.check(feature, self.id_map, inputs, weights, scores)
        symbolic.check_rank(feature, inputs)
        self._check(ages, query)
        if ages is not None and not isinstance(inputs, Mapping):
            check_like(inputs, ages, f"{self.label}, ages")
        dim = self.table_config.embedding_dim
        return symbolic.output_spec(inputs, "mean", dim, self.compute_dtype, squeeze=True)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """`[B, D]`."""
        return (input_shape[0], self.table_config.embedding_dim)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "pooling": keras.layers.serialize(self.pooling),
            "max_length": self.max_length,
            "keep": self.keep,
            "padding_id": self.padding_id,
        }

    @classmethod
    def _parts_from(cls, config_: Mapping[str, Any]) -> dict[str, Any]:
        return {"pooling": keras.layers.deserialize(config_["pooling"])}

    def _check(self, ages: Any, query: Any) -> None:
        """Raises unless the call has what the pooling needs, and nothing that it doesn't."""
        pooling = type(self.pooling).__name__
        for name, given, needed, instead in (
            ("ages", ages, self.pooling.needs_ages, "RecencyWeighted(age_half_life=) does"),
            ("query", query, self.pooling.needs_query, "TargetAttention does"),
        ):
            if needed and given is None:
                raise ValueError(
                    f"UserFromItems {self.name!r}: {pooling} needs the call argument {name}=."
                )
            if given is not None and not needed:
                raise ValueError(
                    f"UserFromItems {self.name!r}: {pooling} has no use for {name}=; {instead}."
                )
        if query is not None:
            self._check_query(query)

    def _check_query(self, query: Any) -> None:
        if not tf.as_dtype(query.dtype).is_floating:
            raise TypeError(
                f"UserFromItems {self.name!r}: query has dtype {query.dtype}; it is the "
                "candidates' vectors [B, D]: give items(candidates)."
            )
        shape, dim = tf.TensorShape(query.shape), self.table_config.embedding_dim
        squeezed = shape[:1].concatenate(shape[2:]) if shape.rank == 3 and shape[1] == 1 else shape
        if not squeezed.is_compatible_with([None, dim]):
            raise ValueError(
                f"UserFromItems {self.name!r}: query has shape {shape}; it must be [B, {dim}], "
                "vectors as long as the items'."
            )

    def _flat_query(self, query: tf.Tensor, bags: Bags) -> tf.Tensor:
        if bags.inverse is not None:
            raise ValueError(
                f"{self.label}: histories that samples share (Bags with inverse) can't have a "
                "query for each sample; give each sample its own history."
            )
        query = tf.reshape(query, [-1, self.table_config.embedding_dim])
        count = tf.size(bags.row_splits, tf.int64) - 1
        given = tf.shape(query, tf.int64)[0]
        message = f"{self.label}: query and histories have different batch sizes:"
        return asserted(query, tf.equal(given, count), [message, given, count])

    def _flat_ages(self, inputs: Any, bags: Bags, ages: Any) -> tf.Tensor:
        """`[N]`, one for each value of the bags."""
        name = f"{self.label}, ages"
        if isinstance(inputs, Mapping):
            like = tf.RaggedTensor.from_row_splits(bags.values, bags.row_splits, validate=False)
            if isinstance(ages, Mapping):
                ages = _without_names(ages)
                ages = tf.RaggedTensor.from_row_splits(
                    ages["values"], ages["row_splits"], validate=False
                )
            elif not isinstance(ages, tf.RaggedTensor):
                like = like.values if bags.hotness is None else inputs["values"]
            inputs = like
        flat = flat_weights(inputs, ages, name)
        assert flat is not None
        if not (flat.dtype.is_floating or flat.dtype.is_integer):
            raise TypeError(f"{name} have dtype {flat.dtype.name}; ages are numbers.")
        return flat


def _without_names(inputs: Any) -> Any:
    """Merlin's pair `x__values`, `x__offsets` as values and row splits; others as they are."""
    if not isinstance(inputs, Mapping) or "values" in inputs:
        return inputs
    stems = {key.removesuffix(end) for key in inputs for end in _PAIR if key.endswith(end)}
    if len(stems) == 1 and len(inputs) == 2:
        [stem] = stems
        return {"values": inputs[stem + _PAIR[0]], "row_splits": inputs[stem + _PAIR[1]]}
    return inputs  # Bags say what they take
