"""`Embeddings`: many features, many tables, one native lookup."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat, config
from merlin_embeddings.bags import Bags, check_pool, truncate
from merlin_embeddings.config import FeatureConfig
from merlin_embeddings.layers import flatten, missing, structure, symbolic
from merlin_embeddings.layers.base import TableLayer
from merlin_embeddings.layers.position_weights import LearnedWeights
from merlin_embeddings.layers.table_set import TableSet, label
from merlin_embeddings.tables import DenseTable


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class Embeddings(TableLayer):
    """Looks up features in their tables: a structure of ids in, the same structure of vectors out.

    Features that name one table share it. All tables of one dtype are served by one native call,
    whatever their dims and combiners. Weights that features learn by position stand beside the
    tables, as "<feature>_position_weights".

    Args:
        features: `FeatureConfig`s in dicts, lists and tuples, nested as you like.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        ValueError: one table name with two configs, one feature name twice, no feature at all,
            keys of a dict that Keras's files can't hold, or a table with the name of position
            weights.

    Call arguments:
        inputs: for each feature, ids that are integers or strings: `[B]`, `[B, L]`, ragged
            `[B, None]`, sparse `[B, L]` (a last dimension of 1 more is dropped), or
            `merlin_embeddings.Bags`. Dicts may have Merlin's pairs `x__values`, `x__offsets` for
            feature `x`, and keys that are no features; features whose config says
            `missing="zeros"` may be left out or None. Batch sizes may differ; a feature left out
            has that of the first one there is.
        weights: a number for each id, of the kind and shape of the ids; None for features that
            have none.
        scores: the same, integers in `[0, 2**32)`, for tables whose `ids` have the policy `Custom`:
            the ids with the highest keep their rows.

    Returns:
        For each feature `[B, D]`; with `combiner=None` `[B, D]`, `[B, L, D]` or ragged
        `[B, None, D]`.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> item = me.TableConfig("item", vocabulary_size=100, embedding_dim=4)
    >>> user = me.TableConfig("user", None, 2, ids=me.ids.Modulo(10), dtype="bfloat16")
    >>> layer = me.layers.Embeddings({
    ...     "history": me.FeatureConfig("history", item),
    ...     "last": me.FeatureConfig("last", item),
    ...     "user": me.FeatureConfig("user", user),
    ... })
    >>> vectors = layer({
    ...     "history": tf.ragged.constant([[3, 1, 4], []]),
    ...     "last": tf.constant([4, 9]),
    ...     "user": tf.constant(["ann", "bob"]),
    ... })
    >>> {name: tuple(v.shape) for name, v in vectors.items()}
    {'history': (2, 4), 'last': (2, 4), 'user': (2, 2)}
    >>> [weight.name for weight in layer.weights]
    ['item', 'user']
    """

    def __init__(self, features: Any, **kwargs: Any):
        super().__init__(**kwargs)
        self._features = _Features(features, structure.flatten(features))
        self._table_set = TableSet(self._features.flat)
        self._learned = LearnedWeights(self._features.flat)

    @property
    def features(self) -> Any:
        """The structure of `FeatureConfig`s."""
        return self._features.nested

    @property
    def table_set(self) -> TableSet:
        """The layer's tables."""
        return self._table_set

    @property
    def tables(self) -> dict[str, DenseTable]:
        """The tables by name, once the layer is built."""
        return dict(self._table_set.tables)

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(
        self, inputs: Any, weights: Any = None, training: bool | None = None, scores: Any = None
    ) -> Any:
        """Vectors in the structure of the features, in the layer's compute dtype."""
        features = self._features.flat
        batches, its_weights, its_scores = self._match(inputs, weights, scores)
        if not self.table_set.exist:
            # Keras asks for shapes, and says float32 where it doesn't know the dtype of inputs.
            batches = [None if ids is None else flatten.as_integers(ids) for ids in batches]
        flats = {
            at: self._flat(feature, ids, its_weights[at], its_scores[at])
            for at, (feature, ids) in enumerate(zip(features, batches, strict=True))
            if ids is not None
        }
        vectors = self.look_up(
            [features[at] for at in flats], [flat.bags for flat in flats.values()], training
        )
        outputs: list[Any] = [None] * len(features)
        for (at, flat), its_vectors in zip(flats.items(), vectors, strict=True):
            outputs[at] = flat.restore(tf.cast(its_vectors, self.compute_dtype))
        outputs = missing.fill(features, outputs, self.compute_dtype)
        return structure.pack(self._features.nested, iter(outputs))

    def compute_output_spec(
        self, inputs: Any, weights: Any = None, training: bool | None = None, scores: Any = None
    ) -> Any:
        """Shapes and dtypes of the outputs for symbolic inputs."""
        del training
        features = self._features.flat
        specs = [
            None if ids is None else self._output_spec(feature, ids, w, s)
            for feature, ids, w, s in zip(
                features, *self._match(inputs, weights, scores), strict=True
            )
        ]
        filled = missing.fill_specs(features, specs, self.compute_dtype)
        return structure.pack(self._features.nested, iter(filled))

    def build(self, input_shape: Any = None) -> None:
        """Makes the tables and the position weights."""
        if not self.built:
            super().build(input_shape)
            self._learned.build(functools.partial(compat.add_weight, self))
            for name, variable in self._learned.variables.items():
                setattr(self, f"weight:{name}", variable)  # as TableLayer does with tables

    @property
    def dense_weights(self) -> Mapping[str, Any]:
        """The position weights by their names, once the layer is built."""
        return dict(self._learned.variables)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments as plain data."""
        return {**super().get_config(), "features": config.to_plain(self._features.nested)}

    @classmethod
    def from_config(cls, config_: Mapping[str, Any]) -> Embeddings:
        """The layer that `get_config` describes."""
        return super().from_config({**config_, "features": config.from_plain(config_["features"])})

    def _match(
        self, inputs: Any, weights: Any, scores: Any
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Ids, weights and scores of each feature, None where there are none."""
        features = self._features
        batches = structure.match(features.nested, inputs)
        its_weights = structure.match_weights(features.nested, weights)
        its_scores = structure.match_weights(features.nested, scores, "scores")
        for feature, ids, w, s in zip(features.flat, batches, its_weights, its_scores, strict=True):
            missing.check_weights(feature, ids, w)
            missing.check_weights(feature, ids, s, "scores")
        return batches, its_weights, its_scores

    def _flat(self, feature: FeatureConfig, ids: Any, weights: Any, scores: Any) -> flatten.Flat:
        name = label(feature)
        if feature.combiner is None:
            check_pool(None, weights, name)
            flatten.check_not_sparse(ids, name)
            ids = flatten.squeeze(ids, name)
            if feature.max_length is None:
                return flatten.single(ids, feature.padding_id, name, scores)
            return flatten.single_truncated(
                ids, feature.padding_id, name, feature.max_length, feature.keep, scores
            )
        bags = Bags.of(ids, weights, feature.padding_id, name, scores)
        if feature.max_length is not None:
            bags = truncate(bags, feature.max_length, feature.keep)
        if self.table_set.exist:
            bags = self._learned.weigh(feature, bags)
        return flatten.Flat(bags, bags.expand)

    def _output_spec(
        self, feature: FeatureConfig, ids: Any, weights: Any, scores: Any
    ) -> keras.KerasTensor:
        symbolic.check(feature, self.table_set.ids[feature.table.name], ids, weights, scores)
        symbolic.check_rank(feature, ids)
        dim = feature.table.embedding_dim
        return symbolic.output_spec(
            ids, feature.combiner, dim, self.compute_dtype, feature.max_length, squeeze=True
        )


@dataclasses.dataclass(frozen=True)
class _Features:
    """The structure of features as it was given: Keras would wrap it if it were an attribute."""

    nested: Any
    flat: list[FeatureConfig]
