"""`InputBlock`: a batch's columns in, what a model begins with out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat, config, data
from merlin_embeddings.config import FeatureConfig
from merlin_embeddings.data import Column
from merlin_embeddings.layers import aggregation as aggregations
from merlin_embeddings.layers.batch_l2 import BatchL2
from merlin_embeddings.layers.embeddings import Embeddings
from merlin_embeddings.layers.numeric import NumericColumns, symbols
from merlin_embeddings.layers.pretrained import with_vectors

_PARTS = ("categorical", "continuous", "vectors", "pre", "post", "aggregation")


@keras.utils.register_keras_serializable(package="merlin_embeddings")
class InputBlock(keras.layers.Layer):
    """The first layer of a model for the columns of a schema, as merlin-models' `InputBlockV2`.

    The columns of a batch become vectors: categorical ones are looked up, continuous ones `[B]`
    become `[B, 1]`, vectors that come with the batch stay. They are then joined, in the sorted
    order of the columns' names (a layer given for `continuous` or `vectors` that returns one tensor
    counts as a column named "continuous" or "vectors"), which is InputBlockV2's order, so that a
    dense layer's weights fit both.

    Args:
        schema: a `merlin.schema.Schema` or `merlin_embeddings.data.Column`s. Targets and untagged
            columns are left out.
        categorical: True: the tables of `features_from_schema(schema)`; features (FeatureConfigs by
            column); a layer, such as `Embeddings`; None: no categorical columns.
        continuous: True: each column by itself; a layer, say a projection, that gets all of them as
            `[B, C]` in the sorted order of their names; None: no continuous columns.
        pretrained: tables that begin with given vectors: a `Pretrained`, or an array, a file or a
            dataset, by name of table or column. Goes with `categorical=True` or features.
        vectors: the same as `continuous` for columns tagged as embedding (the Merlin loader's
            EmbeddingOperator adds them to a batch); a layer gets them as a dict.
        aggregation: "concat": `[B, sum of D]`; "stack": `[B, D, F]`; a layer that takes a dict;
            None: the dict of vectors.
        pre: a layer, or several, that take the dict of inputs and return one.
        post: a layer, or several, that take the dict of vectors, before they are joined.
        l2_batch_regularization_factor: of a loss, factor * sum of squares of the vectors looked up
            for a batch; one for all categorical columns, or by column.
        fingerprint: of the workflow that made the columns, a `data.Fingerprint`: kept with the
            model, for `data.check_fingerprint` where it serves.
        **kwargs: of `keras.layers.Layer`.

    Raises:
        TypeError: no schema, or something that is no layer.
        ValueError: no column is left, or what is given doesn't fit the schema.

    Call arguments:
        inputs: a dict of columns: scalars `[B]` or `[B, 1]`, lists ragged `[B, None]` or dense
            `[B, L]`, or Merlin's pairs `x__values`, `x__offsets`. Others are left alone.

    Returns:
        A tensor, or without aggregation a dict of one for each column. A list whose combiner is
        None stays a sequence: ragged `[B, None, D]`.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> schema = [
    ...     me.data.Column("user", ("categorical",), domain=me.data.Domain(max=99)),
    ...     me.data.Column("genres", ("categorical",), is_list=True, domain=me.data.Domain(max=9)),
    ...     me.data.Column("age", ("continuous",)),
    ... ]
    >>> block = InputBlock(schema, categorical=me.features_from_schema(schema, embedding_dim=4))
    >>> batch = {
    ...     "user": tf.constant([7, 8]),
    ...     "genres": tf.ragged.constant([[1, 2], []]),
    ...     "age": tf.constant([0.5, -0.5]),
    ... }
    >>> block(batch).shape  # age, genres, user
    TensorShape([2, 9])
    """

    def __init__(
        self,
        schema: Any,
        categorical: Any = True,
        continuous: Any = True,
        pretrained: Mapping[str, Any] | None = None,
        vectors: Any = True,
        aggregation: Any = "concat",
        pre: Any = None,
        post: Any = None,
        l2_batch_regularization_factor: float | Mapping[str, float] = 0.0,
        fingerprint: data.Fingerprint | None = None,
        **kwargs: Any,
    ):
        # Cast by the parts: Keras would cast ids too.
        super().__init__(**{**kwargs, "autocast": False})
        parts = {"dtype": compat.dtype_policy(self)}
        self._schema = tuple(data.columns(schema))
        self._l2 = (l2_batch_regularization_factor,)  # in a tuple: Keras would wrap a dict
        if not isinstance(fingerprint, (data.Fingerprint, type(None))):
            raise TypeError(
                f"InputBlock {self.name!r}: fingerprint={fingerprint!r}; it must be "
                "data.Fingerprint.of(workflow), or None."
            )
        self.fingerprint = fingerprint
        self.categorical = self._categorical(categorical, pretrained, parts)
        self.continuous = _layer_or_flag("continuous", continuous)
        self.vectors = _layer_or_flag("vectors", vectors)
        self.pre = _layers("pre", pre)
        self.post = _layers("post", post)
        self.aggregation = aggregations.get(aggregation, **parts)
        self._numbers = self._numeric("continuous", continuous, parts)
        self._number_matrix = aggregations.Concat(**parts)
        self._vectors_of_batch = self._numeric("embedding", vectors, parts)
        self._l2_loss = self._batch_l2(l2_batch_regularization_factor)
        if not (self.categorical or self._numbers or self._vectors_of_batch):
            raise ValueError(
                f"InputBlock {self.name!r}: no column is left. The schema has "
                f"{ {column.name: column.kind for column in self._schema} }. NVTabular's operators "
                "tag columns as categorical and continuous; AddMetadata tags others."
            )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The schema's columns."""
        return self._schema

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights of all parts."""
        self._check_dict(input_shape)
        if compat.has_keras_3():
            # By symbols of the schema's kinds: Keras hands on shapes only.
            self.call(symbols(self._schema, input_shape))
        self.built = True

    @tf.autograph.experimental.do_not_convert  # plain Python: no tensor decides what is done
    def call(self, inputs: Mapping[str, Any], training: bool | None = None) -> Any:
        """The vectors of a batch, joined; see the class."""
        del training
        self._check_dict(inputs)
        for layer in self.pre:
            inputs = layer(inputs)
        branches: list[dict[str, Any]] = []
        if self.categorical:
            branches.append(self._l2_loss(_named("categorical", self.categorical(inputs))))
        if self._numbers:
            branches.append(self._projected(self._numbers(inputs)))
        if self._vectors_of_batch:
            found, layer = self._vectors_of_batch(inputs), self.vectors
            branches.append(found if layer is True else _named("vectors", layer(found)))
        vectors = self._together(branches)
        for layer in self.post:
            vectors = layer(vectors)
        return self.aggregation(vectors) if self.aggregation else vectors

    def compute_output_spec(self, inputs: Mapping[str, Any], training: bool | None = None) -> Any:
        """Shapes and dtypes of the outputs for symbolic inputs."""
        del training
        # All parts are layers, so symbols pass through them too. Copies: a symbol that a part hands
        # on would otherwise come from that part in the model around.
        return _copies(self.call(_copies(inputs)))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments; pretrained tables are part of the categorical layer."""
        parts = {name: getattr(self, name) for name in _PARTS}
        return {
            **super().get_config(),
            "schema": config.to_plain(list(self._schema)),
            "l2_batch_regularization_factor": self._l2[0],
            "fingerprint": config.to_plain(self.fingerprint),
            **{name: _serialized(part) for name, part in parts.items()},
        }

    @classmethod
    def from_config(cls, config_: Mapping[str, Any]) -> InputBlock:
        """The layer that `get_config` describes."""
        parts = {name: _deserialized(config_[name]) for name in _PARTS}
        plain = {name: config.from_plain(config_[name]) for name in ("schema", "fingerprint")}
        return cls(**{**config_, **parts, **plain})

    def _check_dict(self, inputs: Any) -> None:
        if not isinstance(inputs, Mapping):
            raise ValueError(f"InputBlock {self.name!r} takes a dict of columns; got {inputs!r}.")

    def _categorical(
        self, given: Any, pretrained: Mapping[str, Any] | None, parts: Mapping[str, Any]
    ) -> keras.layers.Layer | None:
        if not isinstance(pretrained, (Mapping, type(None))):
            raise TypeError(
                f"InputBlock {self.name!r}: pretrained is a {type(pretrained).__name__}; it must "
                "be a dict by name of table or column: {'item': vectors}."
            )
        if isinstance(given, keras.layers.Layer) or not given:
            if pretrained:
                raise ValueError(
                    f"InputBlock {self.name!r}: pretrained= changes the tables of categorical=True "
                    "or of features. A layer's own tables begin with TableConfig(initializer=array)"
                )
            return given or None
        if given is True:
            if not data.categorical(self._schema) and not pretrained:
                return None
            given = data.features_from_schema(self._schema)
        if not isinstance(given, Mapping) or not all(
            isinstance(feature, FeatureConfig) for feature in given.values()
        ):
            raise TypeError(
                f"InputBlock {self.name!r}: categorical={given!r}; it must be True, None, a dict "
                "of FeatureConfigs by column, or a layer."
            )
        features = with_vectors(given, pretrained or {})
        return Embeddings(features, name="categorical", **parts)

    def _numeric(self, kind: str, given: Any, parts: Mapping[str, Any]) -> NumericColumns | None:
        columns = [column for column in self._schema if column.kind == kind]
        return NumericColumns(columns, **parts) if columns and given else None

    def _projected(self, numbers: dict[str, Any]) -> dict[str, Any]:
        if self.continuous is True:
            return numbers
        return _named("continuous", self.continuous(self._number_matrix(numbers)))

    def _together(self, branches: Sequence[dict[str, Any]]) -> dict[str, Any]:
        together: dict[str, Any] = {}
        for branch in branches:
            for name in branch.keys() & together.keys():
                raise ValueError(
                    f"InputBlock {self.name!r}: two outputs have the name {name!r}. A layer that "
                    "returns one tensor counts as 'categorical', 'continuous' or 'vectors': rename "
                    "the column, or let the layer return a dict."
                )
            together.update(branch)
        return together

    def _batch_l2(self, factor: float | Mapping[str, float]) -> BatchL2:
        known = {column.name for column in data.categorical(self._schema)}
        unknown = set(factor) - known if isinstance(factor, Mapping) else set()
        if unknown:
            raise ValueError(
                f"InputBlock {self.name!r}: l2_batch_regularization_factor has {sorted(unknown)}, "
                f"which is no categorical column; these are {sorted(known)}."
            )
        return BatchL2(factor)


def _layer_or_flag(name: str, given: Any) -> Any:
    if given is True or isinstance(given, keras.layers.Layer):
        return given
    if not given:
        return None
    raise TypeError(f"InputBlock: {name}={given!r}; it must be True, None or a layer.")


def _layers(name: str, given: Any) -> tuple[keras.layers.Layer, ...]:
    layers = tuple(given) if isinstance(given, (list, tuple)) else (given,) if given else ()
    for layer in layers:
        if not isinstance(layer, keras.layers.Layer):
            raise TypeError(
                f"InputBlock: {name} has {layer!r}; it must be a layer, or several, from a dict to "
                "a dict. keras.layers.Lambda makes one of a function."
            )
    return layers


def _named(name: str, output: Any) -> dict[str, Any]:
    return dict(output) if isinstance(output, Mapping) else {name: output}


def _copies(symbols_: Any) -> Any:
    if isinstance(symbols_, Mapping):
        return {name: _copies(symbol) for name, symbol in symbols_.items()}
    if not isinstance(symbols_, keras.KerasTensor):
        return symbols_
    kind = {"sparse": symbols_.sparse, "ragged": symbols_.ragged}
    return keras.KerasTensor(symbols_.shape, dtype=symbols_.dtype, **kind)


def _serialized(part: Any) -> Any:
    if isinstance(part, tuple):
        return [_serialized(layer) for layer in part]
    if isinstance(part, keras.layers.Layer):
        return keras.layers.serialize(part)
    return part


def _deserialized(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_deserialized(layer) for layer in plain]
    return keras.layers.deserialize(plain) if isinstance(plain, Mapping) else plain
