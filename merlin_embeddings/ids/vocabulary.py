"""Row = the place of the id in a list."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from merlin_embeddings import config
from merlin_embeddings.ids.counting import count
from merlin_embeddings.ids.hash import check_salt
from merlin_embeddings.ids.known import KnownIds
from merlin_embeddings.ids.known_map import UNKNOWN, KnownIdsMap

KINDS = ("strings", "integers")


@config.spec
@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The row of an id is its place in a list; what other ids are, `oov_rows` and `unknown` say.

    The list is no part of a layer's config, whatever its length: it is among the weights of the
    layer that owns the table, and comes back with them. So a layer made from a config alone
    (`from_config`, `clone_model`) knows no ids before weights are loaded or set.

    Args:
        ids: N distinct integers or strings: a list, an array, a tensor. See also `from_file` and
            `adapt`.
        oov_rows: so many rows behind the N are shared by all other ids: row `N +
            ids.Hash(oov_rows, salt)` of the id.
        unknown: what other ids are where `oov_rows` is 0. "error": an error that names table,
            feature and ids. "zero": ids without a vector.
        salt: of the hash.

    Raises:
        TypeError: ids that are neither integers nor strings.
        ValueError: ids that come twice, or another field that can't be.

    >>> import merlin_embeddings as me
    >>> import tensorflow as tf
    >>> rows = me.layers.MapIds(me.ids.Vocabulary(["Rome", "Oslo"], oov_rows=1))
    >>> rows(tf.constant(["Oslo", "Bonn", "Rome"])).numpy().tolist()
    [1, 2, 0]
    >>> me.ids.Vocabulary([70, 10, 30])
    Vocabulary(ids=KnownIds(3 integers))
    """

    ids: Any
    oov_rows: int = 0
    unknown: str = "error"
    salt: int = 0

    def __post_init__(self):
        object.__setattr__(self, "ids", KnownIds.of(self.ids, "ids.Vocabulary"))
        check_oov_rows("ids.Vocabulary", self.oov_rows)
        check_salt("ids.Vocabulary", self.salt)
        if self.unknown not in UNKNOWN:
            raise ValueError(
                f"ids.Vocabulary: unknown={self.unknown!r}; it must be one of "
                f"{', '.join(map(repr, UNKNOWN))}."
            )

    @classmethod
    def from_file(cls, path: str | os.PathLike, kind: str = "strings", **kwargs: Any) -> Vocabulary:
        """Of a file: text, an id a line (UTF-8), or a `.npy` array.

        Args:
            path: of the file.
            kind: what the lines of a text are: "strings" or "integers".
            **kwargs: of `Vocabulary`.

        Raises:
            ValueError: an empty line, a line that is no integer, or what `Vocabulary` refuses.
        """
        if kind not in KINDS:
            raise ValueError(f"ids.Vocabulary: kind={kind!r}; it must be 'strings' or 'integers'.")
        if os.fspath(path).endswith(".npy"):
            return cls(np.load(path), **kwargs)
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = [line.rstrip("\r\n") for line in file]
        return cls(
            [_id(line, number, kind, path) for number, line in enumerate(lines, 1)], **kwargs
        )

    @classmethod
    def adapt(
        cls,
        data: Any,
        max_size: int | None = None,
        min_count: int = 1,
        padding_id: int | str | None = None,
        **kwargs: Any,
    ) -> Vocabulary:
        """Of the ids of data, the most frequent first (of equal counts, the lower id).

        Args:
            data: what `ids.count` takes: arrays, tensors, a `tf.data.Dataset` of one column.
            max_size: at most so many ids.
            min_count: only ids that come so often.
            padding_id: an id that is none.
            **kwargs: of `Vocabulary`.

        Raises:
            ValueError: no id comes so often.

        >>> Vocabulary.adapt([7, 3, 7, 5, 3, 7], max_size=2).ids.keys.tolist()
        [7, 3]
        """
        for name, value in (("max_size", max_size), ("min_count", min_count)):
            if not config.is_row_count(value) and not (name == "max_size" and value is None):
                raise ValueError(
                    f"ids.Vocabulary: {name}={value!r}; it must be a positive integer."
                )
        ids, counts = count(data, padding_id)
        often = ids[counts >= min_count][:max_size]
        if not len(often):
            raise ValueError(
                f"ids.Vocabulary: no id of the data comes {min_count} times; lower min_count."
            )
        return cls(often, **kwargs)

    def rows_of(self, vocabulary_size: int | None) -> int:
        """How many ids are in the list, and `oov_rows`; whatever `vocabulary_size`."""
        del vocabulary_size
        return self.ids.size + self.oov_rows

    def build(self, vocabulary_size: int | None = None) -> KnownIdsMap:
        """The map; its index is made by `make`."""
        del vocabulary_size
        return KnownIdsMap(self.ids, self.oov_rows, self.unknown, self.salt)


def check_oov_rows(spec: str, oov_rows: Any) -> None:
    """Raises ValueError unless there can be so many rows for ids without one of their own."""
    if (oov_rows != 0 and not config.is_row_count(oov_rows)) or isinstance(oov_rows, bool):
        raise ValueError(f"{spec}: oov_rows={oov_rows!r}; it must be an integer of 0 or more.")


def _id(line: str, number: int, kind: str, path: Any) -> Any:
    if not line:
        raise ValueError(f"ids.Vocabulary: line {number} of {os.fspath(path)!r} is empty.")
    if kind == "strings":
        return line
    try:
        return int(line)
    except ValueError:
        raise ValueError(
            f"ids.Vocabulary: line {number} of {os.fspath(path)!r} is {line!r}, no integer; "
            "kind='strings' takes any."
        ) from None
