"""The map of ids that are known beforehand."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from merlin_embeddings import compat, native
from merlin_embeddings.ids.base import PureIdMap
from merlin_embeddings.ids.known import KnownIds

UNKNOWN = ("error", "zero")
_LINK = "_merlin_embeddings_known_ids"
# Nothing is ever evicted: there is a row for each known id.
_POLICY = native.IdPolicy("lru", evict=False)


class KnownIdsMap(PureIdMap):
    """Row = place among the known ids; see `Vocabulary`.

    The index is the native table of ids that stateful maps have, of which only `find` is used once
    it is filled. Its arrays are weights of the owner.

    Args:
        known: the ids.
        oov_rows: rows behind theirs that all others share.
        unknown: what others are where there are none: "error" or "zero".
        salt: of the hash of the others.
    """

    def __init__(self, known: KnownIds, oov_rows: int, unknown: str, salt: int):
        self.known = known
        self.rows = known.size + oov_rows
        self.strings = known.strings
        self.takes_any = known.strings
        self.oov_rows = oov_rows
        self.unknown = "share" if oov_rows else unknown
        self.salt = salt
        self._layout = _layout(known.size)
        self._arrays = native.state_arrays(self._layout)
        self._weights: dict[str, Any] = {}

    # Weights

    @property
    def weights(self) -> Mapping[str, Any]:
        return dict(self._weights)

    def make(self, add_weight: Callable, name: str) -> None:
        values = None if self.known.keys is None else self._index(self.known.keys)
        with compat.on_host():
            for array in self._arrays:
                first = array.zeros if values is None else _always(values[array.name])
                self._weights[array.name] = add_weight(
                    shape=(array.size,),
                    initializer=_initializer(first),
                    dtype=array.dtype.name,
                    trainable=False,
                    autocast=False,
                    name=compat.weight_name(f"{name}_ids_{array.name}"),
                )
        for variable in self._weights.values():
            setattr(variable, _LINK, weakref.ref(self))

    def saved(self) -> np.ndarray:
        """The known ids `[N]` int64 in the order of their rows: what files hold."""
        if self.known.keys is not None:
            return self.known.keys
        state = [compat.raw_variable(variable) for variable in self._weights.values()]
        entries = native.id_entries(state, self._layout)
        keys = np.zeros(self.known.size, np.int64)
        keys[entries.rows.numpy()] = entries.ids.numpy()
        return keys

    def check_saved(self, keys: Any, name: str) -> None:
        """Raises ValueError unless `keys`, as `saved` gives them, are this map's.

        Args:
            keys: `[N]`, of a file.
            name: what messages call the map.
        """
        found = KnownIds(np.asarray(keys, np.int64), strings=self.known.strings)
        if found != self.known:
            raise ValueError(
                f"{name}: the file has a vocabulary of {found.size} ids, the layer was made for "
                f"another one, {self.known}. Rows would be those of other ids: make the layer "
                "with the vocabulary of the file."
            )

    def load(self, keys: Any) -> None:
        """Takes the known ids as `saved` gives them."""
        keys = np.asarray(keys, np.int64)
        self.known = KnownIds(keys, strings=self.known.strings)
        values = self._index(keys)
        for name, variable in self._weights.items():
            variable.assign(values[name])

    # Rows

    def refuses(self, id: int) -> bool:
        if self.unknown != "error":
            return False
        return self.known.keys is None or id not in self.known.keys

    def accepted(self) -> Any:
        if self.known.keys is not None:
            return int(self.known.keys[0])
        tags, keys = (compat.raw_variable(self._weights[name]) for name in ("tags", "keys"))
        return keys.sparse_read(tf.argmax(tags.read_value() > 0))

    @classmethod
    def assign_each(
        cls, maps: Sequence[Self], ids: Sequence[tf.Tensor], names: Sequence[str]
    ) -> list[tf.Tensor]:
        # Others' rows first: one call for all.
        sharing = [at for at, one in enumerate(maps) if one.oov_rows]
        hashed = {}
        if sharing:
            found = native.hash_ids(
                [ids[at] for at in sharing],
                [maps[at].oov_rows for at in sharing],
                [maps[at].salt for at in sharing],
            )
            hashed = dict(zip(sharing, found, strict=True))
        return [maps[at]._rows(ids[at], hashed.get(at), names[at]) for at in range(len(maps))]

    def _rows(self, ids: tf.Tensor, others: tf.Tensor | None, name: str) -> tf.Tensor:
        state = [compat.raw_variable(variable) for variable in self._weights.values()]
        if self.known.keys is None:
            ids = self._once_loaded(ids, state, name)
        [found] = native.find_ids(state, self._layout, [ids], [None], [name])
        if others is not None:
            return tf.where(found < 0, others + self.known.size, found)
        if self.unknown == "zero":
            return found
        unknown = tf.boolean_mask(ids, found < 0)
        what = "strings (here by their fingerprints)" if self.known.strings else "ids"
        message = (
            f"{name}: {what} that are none of the {self.known.size} of the vocabulary; give it "
            "oov_rows= for them, or unknown='zero':"
        )
        return native.asserted(found, tf.equal(tf.size(unknown), 0), [message, unknown])

    def _once_loaded(self, ids: tf.Tensor, state: Sequence[tf.Variable], name: str) -> tf.Tensor:
        used = state[-1].sparse_read(native.METERS.index("used"))
        message = (
            f"{name}: the layer was made from a config, which has no vocabulary; its {self.known} "
            "come with the weights. Load or set them, or give the layer its ids again. Loaded:"
        )
        return native.asserted(ids, tf.equal(used, self.known.size), [message, used])

    def _index(self, keys: np.ndarray) -> dict[str, tf.Tensor]:
        """The arrays of an index in which the i-th key has row i."""
        with tf.init_scope(), compat.on_host():
            state = [
                # In the scope of a distribution strategy they would be mirrored.
                compat.raw_variable(tf.Variable(array.zeros, trainable=False, dtype=array.dtype))
                for array in self._arrays
            ]
            rows = native.upsert_ids(state, self._layout, _POLICY, tf.constant(keys), None).rows
            rows = rows.numpy()
            if rows.min() < 0:
                raise ValueError(
                    f"A vocabulary of {len(keys)} ids, among them {keys[rows.argmin()]}, that "
                    "can't be indexed: too many of them have hashes alike. Leave some out."
                )
            place = np.empty(len(keys), np.int32)
            place[rows] = np.arange(len(keys), dtype=np.int32)
            entries = native.id_entries(state, self._layout)
            values = dict(zip((array.name for array in self._arrays), state, strict=True))
            native.write_rows(
                values["rows"], entries.slots, tf.constant(place[entries.rows.numpy()])
            )
            return {name: variable.read_value() for name, variable in values.items()}


def known_ids_of(variable: Any) -> KnownIdsMap | None:
    """The map whose index a Keras variable is part of, or None."""
    link = getattr(variable, _LINK, None)
    return None if link is None else link()


def _layout(size: int) -> native.IdLayout:
    """Of an index for so many ids."""
    return native.IdLayout("dynamic", size, initial=size)


def _always(value: tf.Tensor) -> Callable[[], tf.Tensor]:
    return lambda: value


def _initializer(first: Callable[[], tf.Tensor]) -> Callable[..., tf.Tensor]:
    return lambda *_, **__: first()
