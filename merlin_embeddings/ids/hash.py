"""Row = a hash of the id."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf

from merlin_embeddings import config, native
from merlin_embeddings.ids.base import PureIdMap


def check_salt(spec: str, salt: Any) -> None:
    """Raises ValueError, naming the spec, unless `salt` is an int64."""
    if not config.is_int(salt) or not -(2**63) <= salt < 2**63:
        raise ValueError(f"{spec}: salt={salt!r}; it must be an int64.")


@config.spec
@dataclasses.dataclass(frozen=True)
class Hash:
    """The row of an id is a hash of it, in `[0, rows)`: every int64 is an id, ids share rows.

    The hash is public and the same for ever, so that any program can find an id's row:
    `XXH64(id, seed=salt) * rows // 2**64`, where XXH64 (Collet, https://xxhash.com) takes the
    eight bytes of the id as a signed 64-bit integer, lowest byte first. Strings are ids by
    FarmHash's Fingerprint64 first, as everywhere in this package.

    Beside `Modulo` it spreads ids that aren't spread evenly themselves (ids of a region, of a time,
    in steps), and with salts of their own two tables have other ids share a row.

    Args:
        rows: how many rows the table has.
        salt: which of the hashes: any int64.

    Raises:
        ValueError: `rows` isn't a positive integer, or `salt` no int64.

    >>> import tensorflow as tf
    >>> ids = tf.constant([0, 1, -1, 2**63 - 1], tf.int64)
    >>> Hash(1_000_000).build().assign(ids)[0].numpy().tolist()
    [206198, 621731, 522723, 997814]
    >>> Hash(1_000_000, salt=7).build().assign(ids)[0].numpy().tolist()
    [521036, 268757, 470294, 35405]
    """

    rows: int
    salt: int = 0

    def __post_init__(self):
        if not config.is_row_count(self.rows) or self.rows >= 2**63:
            raise ValueError(f"ids.Hash: rows={self.rows!r}; it must be a positive integer.")
        check_salt("ids.Hash", self.salt)

    def rows_of(self, vocabulary_size: int | None) -> int:
        """`rows`, whatever the vocabulary."""
        del vocabulary_size
        return self.rows

    def build(self, vocabulary_size: int | None = None) -> HashMap:
        """The map to `[0, rows)`."""
        return HashMap(self.rows_of(vocabulary_size), self.salt)


class HashMap(PureIdMap):
    """Row = hash of the id; see `Hash`."""

    takes_any = True

    def __init__(self, rows: int, salt: int):
        self.rows = rows
        self.salt = salt

    def refuses(self, id: int) -> bool:
        return False

    @classmethod
    def assign_each(
        cls, maps: Sequence[Self], ids: Sequence[tf.Tensor], names: Sequence[str]
    ) -> list[tf.Tensor]:
        del names  # no id is refused
        return native.hash_ids(ids, [m.rows for m in maps], [m.salt for m in maps])
