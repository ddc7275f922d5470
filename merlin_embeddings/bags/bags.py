"""`Bags`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from merlin_embeddings import native
from merlin_embeddings.bags.values import to_ids, to_padding_id
from merlin_embeddings.bags.weights import flat_weights, kind_of, to_scores, to_vector, to_weights
from merlin_embeddings.native import asserted

_PARTS = {"values", "row_splits", "weights", "inverse", "padding_id", "scores"}


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
        values: `[N]` integers (int64 inside; no uint64 of 2**63 or more) or strings, see
            `hash_strings`.
        row_splits: `[B + 1]` integers: bag b is `values[row_splits[b]:row_splits[b + 1]]`.
        hotness: instead of `row_splits`, where every bag has exactly this many values (>= 1).
        weights: `[N]` numbers, one a value.
        scores: `[N]` integers in `[0, 2**32)`, one a value: what ids are worth to a table whose id
            map keeps those with the highest (`ids.Custom`).
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
        scores: Any = None,
        name: str = "ids",
    ):
        if (row_splits is None) == (hotness is None):
            raise ValueError(f"{name}: bags have either row_splits or a hotness.")
        if hotness is not None and hotness < 1:
            raise ValueError(f"{name}: hotness={hotness}; use row_splits where bags are empty.")
        self._given = to_vector("ids", tf.convert_to_tensor(values), name)
        self.strings = self._given.dtype == tf.string
        self.values = to_ids(self._given, name)
        self.hotness = hotness
        self._row_splits = None if row_splits is None else _integers("row_splits", row_splits, name)
        if self._row_splits is not None and self._row_splits.shape[0] == 0:
            raise ValueError(f"{name}: row_splits is empty; for B bags it has B + 1 entries.")
        self.weights = None if weights is None else to_weights(weights, self.values, name)
        self.scores = None if scores is None else to_scores(scores, self.values, name)
        self.inverse = None if inverse is None else _integers("inverse", inverse, name)
        self.padding_id = to_padding_id(padding_id, self.strings, name)
        self.name = name

    @classmethod
    def of(
        cls,
        inputs: Any,
        weights: Any = None,
        padding_id: Any = None,
        name: str = "ids",
        scores: Any = None,
    ) -> Bags:
        """Bags of any kind of input, with weights and scores of the same kind and shape.

        Args:
            inputs: one of
                - `[B]`: one id a bag; `[B, L]`: L ids a bag; `[B, L, 1]`: the same;
                - a `tf.RaggedTensor` `[B, None]` or `[B, None, 1]`;
                - a `tf.SparseTensor` `[B, L]`, its indices in row-major order;
                - a dict of tensors: `values`, and as needed `row_splits`, `weights`, `scores`,
                  `inverse`, `padding_id`, as `to_tensors` makes it;
                - Bags: weights, scores and padding_id are added where they have none.
            weights: of the kind and shape of `inputs` (`[N]` with `row_splits`), or None.
            padding_id: see `Bags`.
            name: see `Bags`.
            scores: of the kind and shape of `inputs`, or None.

        Raises:
            TypeError, ValueError: as `Bags` does.
            tf.errors.InvalidArgumentError: ids and weights have different shapes, row splits or
                indices, or sparse indices aren't sorted.
        """
        if isinstance(inputs, Bags):
            return inputs._completed({"weights": weights, "scores": scores}, padding_id, name)
        if isinstance(inputs, Mapping):
            given = {"weights": weights, "scores": scores}
            return cls._from_tensors(inputs, given, padding_id, name)
        if kind_of(inputs) == "dense":
            inputs = tf.convert_to_tensor(inputs)
        more = {
            "weights": flat_weights(inputs, weights, name),
            "scores": flat_weights(inputs, scores, name, "scores"),
            "padding_id": padding_id,
            "name": name,
        }
        if isinstance(inputs, tf.RaggedTensor):
            return cls(_flat(inputs, name), inputs.row_splits, **more)
        if isinstance(inputs, tf.SparseTensor):
            check_shape("sparse", inputs.shape, name)
            row_splits = native.row_splits(inputs.indices[:, 0], inputs.dense_shape[0], name)
            return cls(inputs.values, row_splits, **more)
        return cls._from_dense(inputs, more)

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
        data = [message, self.inverse, "number of bags:", count]
        return tf.gather(bags, asserted(self.inverse, fine, data))

    def singles(self) -> Bags:
        """Bags of one value each, with its score, without weights and inverse."""
        bags = copy.copy(self)
        bags.hotness, bags._row_splits, bags.weights, bags.inverse = 1, None, None, None
        return bags

    def with_values(self, values: tf.Tensor) -> Bags:
        """The same bags of other values `[N]` int64, with their weights; none of them is padding.

        Args:
            values: such as the rows of these.
        """
        bags = copy.copy(self)
        bags.values = bags._given = values
        bags.strings, bags.padding_id, bags.scores = False, None, None
        return bags

    def take(self, kept: tf.Tensor, row_splits: tf.Tensor) -> Bags:
        """Bags of some of the values, weights and scores with them; padding is none of them.

        Args:
            kept: `[M]`, indices of values.
            row_splits: `[B + 1]`, of those M values.
        """
        bags = self._mapped(lambda values: tf.gather(values, kept))
        bags.hotness, bags._row_splits, bags.padding_id = None, row_splits, None
        return bags

    def take_columns(self, columns: slice) -> Bags:
        """The same values of every bag, weights and scores with them, where bags have a hotness."""
        bags = self._mapped(lambda values: tf.reshape(self._by_bag(values)[:, columns], [-1]))
        bags.hotness = len(range(*columns.indices(self.hotness or 0)))
        return bags

    def checked_row_splits(self) -> tf.Tensor:
        """`row_splits`, once they are known to cut the values into bags.

        Raises:
            tf.errors.InvalidArgumentError: they don't.
        """
        splits = self.row_splits
        if self._row_splits is None:
            return splits
        count = tf.size(self.values, tf.int64)
        fine = tf.reduce_all(splits[1:] >= splits[:-1]) & tf.equal(splits[0], 0)
        message = (
            f"{self.name}: row_splits must begin at 0, never fall, and end at the number of ids:"
        )
        return asserted(
            splits, fine & tf.equal(splits[-1], count), [message, splits, "ids:", count]
        )

    def to_tensors(self) -> dict[str, tf.Tensor]:
        """A dict of tensors that `of` takes, for what carries tensors only (Keras, tf.data).

        Strings stay strings.

        >>> import tensorflow as tf
        >>> sorted(Bags([7, 3, 1], [0, 2, 3], inverse=[1, 0, 1]).to_tensors())
        ['inverse', 'row_splits', 'values']
        """
        tensors = {
            "values": self._given if self.hotness is None else self._by_bag(self._given),
            "row_splits": self._row_splits,
            "weights": self.weights,
            "scores": self.scores,
            "inverse": self.inverse,
            "padding_id": self.padding_id,
        }
        if self.hotness is not None:
            for part in ("weights", "scores"):
                if tensors[part] is not None:
                    tensors[part] = self._by_bag(tensors[part])
        return {key: tf.convert_to_tensor(t) for key, t in tensors.items() if t is not None}

    def __repr__(self) -> str:
        bags = f"hotness={self.hotness}" if self.hotness else f"row_splits={self._row_splits}"
        parts = ("weights", "scores", "inverse")
        more = [f"{key}=..." for key in parts if getattr(self, key) is not None]
        return f"Bags({', '.join([repr(self.values), bags, *more])})"

    def _by_bag(self, values: tf.Tensor) -> tf.Tensor:
        return tf.reshape(values, [-1, self.hotness])

    def _mapped(self, change: Callable[[tf.Tensor], tf.Tensor]) -> Bags:
        """Bags whose values, weights and scores, `[N]` each, are changed alike."""
        bags = copy.copy(self)
        bags._given = change(self._given)
        bags.values = bags._given if self._given is self.values else change(self.values)
        bags.weights = None if self.weights is None else change(self.weights)
        bags.scores = None if self.scores is None else change(self.scores)
        return bags

    def _completed(self, given: Mapping[str, Any], padding_id: Any, name: str) -> Bags:
        """These bags with the weights and scores that are given, and the padding."""
        bags = copy.copy(self)
        bags.name = name
        for part, check in (("weights", to_weights), ("scores", to_scores)):
            if given[part] is not None:
                if getattr(self, part) is not None:
                    raise _given_twice(part, name)
                flat = self._flat_weights(given[part], name, part)
                setattr(bags, part, check(flat, self.values, name))
        if self.padding_id is None:
            bags.padding_id = to_padding_id(padding_id, self.strings, name)
        return bags

    def _flat_weights(self, weights: Any, name: str, what: str) -> Any:
        if kind_of(weights) == "dense":
            weights = tf.convert_to_tensor(weights)
            if self.hotness is None or weights.shape.rank == 1:
                return weights
            return flat_weights(self._by_bag(self.values), weights, name, what)
        ids = tf.RaggedTensor.from_row_splits(self.values, self.row_splits, validate=False)
        return flat_weights(ids, weights, name, what)

    @classmethod
    def _from_tensors(
        cls, tensors: Mapping, given: dict[str, Any], padding_id: Any, name: str
    ) -> Bags:
        check_parts(tensors, name)
        for part, its in given.items():
            if its is not None and tensors.get(part) is not None:
                raise _given_twice(part, name)
        given = {part: tensors.get(part) if its is None else its for part, its in given.items()}
        padding_id = tensors.get("padding_id", padding_id)
        if tensors.get("row_splits") is not None:
            bags = cls(tensors["values"], tensors["row_splits"], name=name)
            bags = bags._completed(given, padding_id, name)
        else:
            bags = cls.of(tensors["values"], given["weights"], padding_id, name, given["scores"])
        if tensors.get("inverse") is not None:
            bags.inverse = _integers("inverse", tensors["inverse"], name)
        return bags

    @classmethod
    def _from_dense(cls, ids: tf.Tensor, more: dict) -> Bags:
        check_shape("dense", ids.shape, more["name"])
        if ids.shape.rank == 1:
            return cls(ids, hotness=1, **more)
        flat = tf.reshape(ids, [-1])
        if ids.shape[1]:
            return cls(flat, hotness=ids.shape[1], **more)
        shape = tf.shape(ids, tf.int64)
        return cls(flat, tf.range(shape[0] + 1) * shape[1], **more)


def check_parts(tensors: Mapping, name: str) -> None:
    """Raises ValueError unless a dict has the keys of `Bags.to_tensors`."""
    if not {"values"} <= set(tensors) <= _PARTS:
        raise ValueError(
            f"{name}: bags given as a dict have 'values' and, as needed, 'row_splits', "
            f"'weights', 'scores', 'inverse' and 'padding_id'; got {sorted(tensors)}."
        )


def check_shape(kind: str, shape: Sequence[int | None] | tf.TensorShape, name: str) -> None:
    """Raises ValueError unless bags can be made of ids of this static shape.

    Args:
        kind: "dense", "ragged" or "sparse".
        shape: what is known of it.
        name: what the ids are.
    """
    shape = tf.TensorShape(shape)
    rank = shape.rank
    if kind == "sparse":
        if rank not in (1, 2):
            raise ValueError(f"{name}: sparse ids have shape {shape}; they are [B, L].")
    elif rank not in ((1, 2) if kind == "dense" else (2,)) and not (rank == 3 and shape[2] == 1):
        raise ValueError(
            f"{name}: ids have shape {shape}; bags are made from [B], [B, L], ragged [B, None] "
            "or sparse [B, L] ids. Reshape them, or set their static shape if it is unknown."
        )


def _given_twice(part: str, name: str) -> ValueError:
    return ValueError(f"{name}: {part} were given twice: in the bags and in the call.")


def _integers(what: str, tensor: Any, name: str) -> tf.Tensor:
    tensor = tf.convert_to_tensor(tensor)
    if not tensor.dtype.is_integer:
        raise TypeError(f"{name}: {what} has dtype {tensor.dtype.name}; it holds integers.")
    return to_vector(what, tf.cast(tensor, tf.int64), name)


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
