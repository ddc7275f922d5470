"""Bags: one feature's ragged batch of ids, made from every kind of input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from merlin_embeddings import native

# FarmHash Fingerprint64 modulo this: 0 .. 2**63 - 2, every value an int64.
STRING_BUCKETS = 2**63 - 1


class Bags:
    """One feature's batch: B bags of ids, one behind the other.

    ```
    bag 0   7 3 1        values      7 3 1 5 5 2    [N]
    bag 1                row_splits  0 3 3 4 6      [B + 1]
    bag 2   5            weights     one a value    [N], or None
    bag 3   5 2          inverse     3 0 0 2 3      [B'], or None
    ```

    With `inverse` the B bags are the distinct ones of B' samples, and what is looked up is expanded
    to B' rows: sample i has bag `inverse[i]`. So each feature can have a batch size of its own
    (TorchRec's "variable batch per feature").

    Args:
        values: `[N]` integers (int64 inside) or strings, see `hash_strings`.
        row_splits: `[B + 1]` integers: bag b is `values[row_splits[b]:row_splits[b + 1]]`.
        hotness: instead of `row_splits`, where every bag has exactly this many values (>= 1).
        weights: `[N]` numbers, one a value.
        inverse: `[B']` integers in `[0, B)`.
        padding_id: values equal to it have no vector: they count in no sum, divisor or maximum.
        name: what the ids are, for messages: "table 'item', feature 'history'".

    Raises:
        TypeError: a wrong dtype.
        ValueError: a wrong rank, or numbers of values, weights and splits that can't agree.

    >>> import tensorflow as tf
    >>> bags = Bags.of(tf.ragged.constant([[7, 3, 1], [], [5]]))
    >>> bags.values.numpy().tolist(), bags.row_splits.numpy().tolist()
    ([7, 3, 1, 5], [0, 3, 3, 4])
    >>> Bags.of(tf.constant([[1, 2], [3, 4]])).hotness
    2
    """

    def __init__(
        self,
        values: Any,
        row_splits: Any = None,
        *,
        hotness: int | None = None,
        weights: Any = None,
        inverse: Any = None,
        padding_id: int | str | tf.Tensor | None = None,
        name: str = "ids",
    ):
        if (row_splits is None) == (hotness is None):
            raise ValueError(f"{name}: bags have either row_splits or a hotness.")
        if hotness is not None and hotness < 1:
            raise ValueError(f"{name}: hotness={hotness}; use row_splits where bags are empty.")
        values = tf.convert_to_tensor(values)
        self.strings = values.dtype == tf.string
        self.values = _vector("ids", _to_ids(values, name), name)
        self.hotness = hotness
        self._row_splits = None if row_splits is None else _integers("row_splits", row_splits, name)
        if self._row_splits is not None and self._row_splits.shape[0] == 0:
            raise ValueError(f"{name}: row_splits is empty; for B bags it has B + 1 entries.")
        self.weights = None if weights is None else _to_weights(weights, self.values, name)
        self.inverse = None if inverse is None else _integers("inverse", inverse, name)
        self.padding_id = _to_padding_id(padding_id, self.strings, name)
        self.name = name

    @classmethod
    def of(
        cls, inputs: Any, weights: Any = None, padding_id: Any = None, name: str = "ids"
    ) -> Bags:
        """Bags of any kind of input, with weights of the same kind and shape.

        Args:
            inputs: one of
                - `[B]`: one id a bag; `[B, L]`: L ids a bag; `[B, L, 1]`: the same;
                - a `tf.RaggedTensor` `[B, None]` or `[B, None, 1]`;
                - a `tf.SparseTensor` `[B, L]`, its indices in row-major order;
                - a dict of tensors: `values`, and as needed `row_splits`, `weights`, `inverse`,
                  `padding_id`, as `to_tensors` makes it;
                - Bags: weights and padding_id are added where they have none.
            weights: of the kind and shape of `inputs` (`[N]` with `row_splits`), or None.
            padding_id: see `Bags`.
            name: see `Bags`.

        Raises:
            TypeError, ValueError: as `Bags` does.
            tf.errors.InvalidArgumentError: ids and weights have different row splits or indices, or
                sparse indices aren't sorted.
        """
        if isinstance(inputs, Bags):
            return inputs._completed(weights, padding_id, name)
        if isinstance(inputs, Mapping):
            return cls._from_tensors(inputs, weights, padding_id, name)
        more = {"padding_id": padding_id, "name": name}
        if isinstance(inputs, tf.RaggedTensor):
            return cls._from_ragged(inputs, weights, more)
        if isinstance(inputs, tf.SparseTensor):
            return cls._from_sparse(inputs, weights, more)
        return cls._from_dense(tf.convert_to_tensor(inputs), weights, more)

    @property
    def row_splits(self) -> tf.Tensor:
        """`[B + 1]` int64; computed where the bags have a hotness."""
        if self._row_splits is not None:
            return self._row_splits
        return tf.range(0, tf.size(self.values, tf.int64) + 1, self.hotness)

    @property
    def is_padding(self) -> tf.Tensor:
        """`[N]` bool: which values have no vector; all False without a padding_id."""
        if self.padding_id is None:
            return tf.zeros_like(self.values, tf.bool)
        padding_id = self.padding_id
        if not isinstance(padding_id, int):
            padding_id = tf.cast(padding_id, tf.int64)
        return tf.equal(self.values, padding_id)

    def expand(self, bags: Any) -> Any:
        """What belongs to the B bags, `[B, ...]`, for the B' samples, `[B', ...]`."""
        if self.inverse is None:
            return bags
        count = bags.nrows() if isinstance(bags, tf.RaggedTensor) else tf.shape(bags, tf.int64)[0]
        fine = tf.reduce_all((self.inverse >= 0) & (self.inverse < count))
        message = f"{self.name}: inverse has values outside of [0, number of bags):"
        check = tf.debugging.Assert(fine, [message, self.inverse, "number of bags:", count])
        with tf.control_dependencies([] if check is None else [check]):
            return tf.gather(bags, self.inverse)

    def to_tensors(self) -> dict[str, tf.Tensor]:
        """A dict of tensors that `of` takes, for what carries tensors only (Keras, tf.data).

        >>> import tensorflow as tf
        >>> sorted(Bags([7, 3, 1], [0, 2, 3], inverse=[1, 0, 1]).to_tensors())
        ['inverse', 'row_splits', 'values']
        """
        tensors = {
            "values": self.values if self.hotness is None else self._by_bag(self.values),
            "row_splits": self._row_splits,
            "weights": self.weights,
            "inverse": self.inverse,
            "padding_id": self.padding_id,
        }
        if self.weights is not None and self.hotness is not None:
            tensors["weights"] = self._by_bag(self.weights)
        return {key: tf.convert_to_tensor(t) for key, t in tensors.items() if t is not None}

    def __repr__(self) -> str:
        bags = f"hotness={self.hotness}" if self.hotness else f"row_splits={self._row_splits}"
        more = [f"{key}=..." for key in ("weights", "inverse") if getattr(self, key) is not None]
        return f"Bags({', '.join([repr(self.values), bags, *more])})"

    def _by_bag(self, values: tf.Tensor) -> tf.Tensor:
        return tf.reshape(values, [-1, self.hotness])

    def _completed(self, weights: Any, padding_id: Any, name: str) -> Bags:
        if weights is not None and self.weights is not None:
            raise ValueError(f"{name}: weights were given twice: in the Bags and in the call.")
        if weights is not None and self.hotness is not None:
            weights = tf.reshape(weights, [-1])
        return Bags(
            self.values,
            self._row_splits,
            hotness=self.hotness,
            weights=self.weights if weights is None else weights,
            inverse=self.inverse,
            padding_id=padding_id if self.padding_id is None else self.padding_id,
            name=name,
        )

    @classmethod
    def _from_tensors(cls, tensors: Mapping, weights: Any, padding_id: Any, name: str) -> Bags:
        unknown = set(tensors) - {"values", "row_splits", "weights", "inverse", "padding_id"}
        if unknown or "values" not in tensors:
            raise ValueError(
                f"{name}: bags given as a dict have 'values' and, as needed, 'row_splits', "
                f"'weights', 'inverse' and 'padding_id'; got {sorted(tensors)}."
            )
        if weights is not None and tensors.get("weights") is not None:
            raise ValueError(f"{name}: weights were given twice: in the bags and in the call.")
        weights = tensors.get("weights") if weights is None else weights
        padding_id = tensors.get("padding_id", padding_id)
        if tensors.get("row_splits") is not None:
            bags = cls(
                tensors["values"],
                tensors["row_splits"],
                weights=weights,
                padding_id=padding_id,
                name=name,
            )
        else:
            bags = cls.of(tensors["values"], weights, padding_id, name)
        if tensors.get("inverse") is not None:
            bags.inverse = _integers("inverse", tensors["inverse"], name)
        return bags

    @classmethod
    def _from_dense(cls, ids: tf.Tensor, weights: Any, more: dict) -> Bags:
        name = more["name"]
        if isinstance(weights, (tf.RaggedTensor, tf.SparseTensor)):
            raise _other_kind(name, "dense", weights)
        if weights is not None:
            weights = tf.convert_to_tensor(weights)
            # [B] ids may come with [B, 1] weights and the other way round: sizes are what counts.
            if not _may_agree(ids.shape, weights.shape):
                raise ValueError(
                    f"{name}: weights have shape {weights.shape}, ids have shape {ids.shape}; give "
                    "one weight an id."
                )
            weights = weights if weights.shape.rank == 1 else tf.reshape(weights, [-1])
        rank = ids.shape.rank
        if rank == 1:
            return cls(ids, hotness=1, weights=weights, **more)
        if rank == 2 or (rank == 3 and ids.shape[2] == 1):
            flat = tf.reshape(ids, [-1])
            if ids.shape[1]:
                return cls(flat, hotness=ids.shape[1], weights=weights, **more)
            shape = tf.shape(ids, tf.int64)
            return cls(flat, tf.range(shape[0] + 1) * shape[1], weights=weights, **more)
        raise ValueError(
            f"{name}: ids have shape {ids.shape}; bags are made from [B], [B, L], ragged [B, None] "
            "or sparse [B, L] ids. Reshape them, or set their static shape if it is unknown."
        )

    @classmethod
    def _from_ragged(cls, ids: tf.RaggedTensor, weights: Any, more: dict) -> Bags:
        name = more["name"]
        flat = _flat(ids, name)
        if weights is not None:
            if not isinstance(weights, tf.RaggedTensor):
                raise _other_kind(name, "ragged", weights)
            flat_weights = _flat(weights, name)
            check = _check_same("row_splits", ids.row_splits, weights.row_splits, name)
            with tf.control_dependencies(check):
                weights = tf.identity(flat_weights) if check else flat_weights
        return cls(flat, ids.row_splits, weights=weights, **more)

    @classmethod
    def _from_sparse(cls, ids: tf.SparseTensor, weights: Any, more: dict) -> Bags:
        name = more["name"]
        if ids.shape.rank not in (1, 2):
            raise ValueError(f"{name}: sparse ids have shape {ids.shape}; they are [B, L].")
        if weights is not None:
            if not isinstance(weights, tf.SparseTensor):
                raise _other_kind(name, "sparse", weights)
            check = _check_same("indices", ids.indices, weights.indices, name)
            with tf.control_dependencies(check):
                weights = tf.identity(weights.values) if check else weights.values
        row_splits = native.row_splits(ids.indices[:, 0], ids.dense_shape[0], name)
        return cls(ids.values, row_splits, weights=weights, **more)


def hash_strings(values: tf.Tensor) -> tf.Tensor:
    """Strings as int64 ids: FarmHash Fingerprint64 modulo 2**63 - 1, in `[0, 2**63 - 1)`.

    The same string has the same id for ever, on every machine.

    >>> import tensorflow as tf
    >>> hash_strings(tf.constant(["Hello", "TensorFlow"])).numpy().tolist()
    [6181326957702750344, 4265654129848386254]
    """
    return tf.strings.to_hash_bucket_fast(values, STRING_BUCKETS)


def _to_ids(values: tf.Tensor, name: str) -> tf.Tensor:
    if values.dtype == tf.int64:
        return values
    if values.dtype == tf.string:
        return hash_strings(values)
    if values.dtype.is_integer:
        return tf.cast(values, tf.int64)
    raise TypeError(
        f"{name}: ids have dtype {values.dtype.name}; ids are integers or strings. Cast them: "
        "tf.cast(ids, tf.int64)."
    )


def _to_weights(weights: Any, values: tf.Tensor, name: str) -> tf.Tensor:
    weights = tf.convert_to_tensor(weights)
    if not (weights.dtype.is_floating or weights.dtype.is_integer):
        raise TypeError(f"{name}: weights have dtype {weights.dtype.name}; weights are numbers.")
    weights = _vector("weights", tf.cast(weights, tf.float32), name)
    if not weights.shape.is_compatible_with(values.shape):
        raise ValueError(
            f"{name}: {weights.shape[0]} weights for {values.shape[0]} ids; give one weight an id."
        )
    return weights


def _to_padding_id(padding_id: Any, strings: bool, name: str) -> Any:
    if not isinstance(padding_id, str):
        return padding_id
    if not strings:
        raise TypeError(f"{name}: padding_id={padding_id!r} is a string, but the ids are integers.")
    with tf.init_scope():  # a number, known before the graph runs
        return int(hash_strings(tf.constant(padding_id)))


def _integers(what: str, tensor: Any, name: str) -> tf.Tensor:
    tensor = tf.convert_to_tensor(tensor)
    if not tensor.dtype.is_integer:
        raise TypeError(f"{name}: {what} has dtype {tensor.dtype.name}; it holds integers.")
    return _vector(what, tf.cast(tensor, tf.int64), name)


def _vector(what: str, tensor: tf.Tensor, name: str) -> tf.Tensor:
    if tensor.shape.rank == 2 and tensor.shape[1] == 1:
        return tf.reshape(tensor, [-1])
    if tensor.shape.rank not in (1, None):
        raise ValueError(f"{name}: {what} has shape {tensor.shape}; it is a vector.")
    return tensor


def _flat(ragged: tf.RaggedTensor, name: str) -> tf.Tensor:
    values = ragged.values
    if isinstance(values, tf.RaggedTensor) or not (
        values.shape.rank == 1 or (values.shape.rank == 2 and values.shape[1] == 1)
    ):
        raise ValueError(
            f"{name}: ragged ids and weights are [B, None]; got {ragged.shape} with "
            f"{ragged.ragged_rank} ragged dimensions. Merge inner ones: "
            "ids.merge_dims(1, -1)."
        )
    return values


def _may_agree(a: tf.TensorShape, b: tf.TensorShape) -> bool:
    """Whether two static shapes may be the same but for dimensions of 1 at the end."""
    if a.rank is None or b.rank is None:
        return True
    a, b = a.as_list(), b.as_list()
    while len(a) > 1 and a[-1] == 1:
        a.pop()
    while len(b) > 1 and b[-1] == 1:
        b.pop()
    return tf.TensorShape(a).is_compatible_with(b)


def _check_same(what: str, a: tf.Tensor, b: tf.Tensor, name: str) -> list:
    """Operations that fail unless two integer tensors are equal; none if they are one object."""
    if a is b:
        return []
    # `incompatible_shape_error=False`: tensors of different shapes are unequal, not an error.
    equal = tf.raw_ops.Equal(
        x=tf.cast(a, tf.int64), y=tf.cast(b, tf.int64), incompatible_shape_error=False
    )
    message = f"{name}: ids and weights have different {what}; give one weight an id, in order."
    check = tf.debugging.Assert(tf.reduce_all(equal), [message, "ids:", a, "weights:", b])
    return [] if check is None else [check]  # eager: checked already


def _other_kind(name: str, kind: str, weights: Any) -> TypeError:
    return TypeError(
        f"{name}: ids are {kind} but weights are a {type(weights).__name__}; give weights of the "
        "same kind."
    )
