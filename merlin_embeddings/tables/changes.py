"""Which rows of a table were written since a mark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from merlin_embeddings import compat, native

# A flag holds how many marks ago its row was last written, plus one; it stops counting here.
_OLDEST = 255


@dataclass(frozen=True)
class Mark:
    """A moment in the life of a table, to ask later what was written since.

    Attributes:
        table: the table's name.
        era: counts how often the table lost track of its own writes.
        number: counts the marks.
    """

    table: str
    era: int
    number: int


class Changes:
    """Remembers the rows of one table that were written, at one byte a row.

    Native updates store 1 in `flags` for each row they write. `mark` ages the flags that are set,
    so the rows written since the k-th last mark are those with a flag in 1..k: any number of
    marks are answered from one array, the latest 254 exactly and older ones with every row that
    was ever written.

    Writes are seen from the first `start` on (an optimizer of this package calls it). Before
    that, and when the variable's buffer was replaced by something else (`assign`, loaded
    weights), every row counts as written. TensorFlow ops that write single rows in place behind
    the table's back (`scatter_nd_update`, a stock optimizer compiled after ours) can't be seen.

    Args:
        name: the table's name.
        variable: the table's variable [R, D].

    Attributes:
        on_start: is given `flags` once `start` has made them.
    """

    on_start: Callable[[tf.Variable], None] | None = None

    def __init__(self, name: str, variable: tf.Variable) -> None:
        self._name = name
        self._variable = variable
        self._flags: tf.Variable | None = None
        self._buffer = 0
        self._era = 0
        self._number = 0

    @property
    def flags(self) -> tf.Variable | None:
        """[R] uint8, what native updates mark; None before `start`."""
        return self._flags

    def start(self) -> tf.Variable:
        """Starts to track, if that hasn't happened yet.

        Returns:
            `flags`.
        """
        if self._flags is None:
            with tf.init_scope(), compat.on_host():
                rows = self._variable.shape[0]
                self._flags = tf.Variable(
                    lambda: tf.zeros([rows], tf.uint8),
                    trainable=False,
                    name=compat.weight_name(f"{self._name}_changed"),
                )
                self._give_replicas_own_buffers()
                self._buffer = self._current_buffer()
            if self.on_start is not None:
                self.on_start(self._flags)
        return self._flags

    def lose(self) -> None:
        """Declares every row written, since nobody knows which were."""
        self._era += 1
        self._number = 0
        if self._flags is not None:
            for flags in compat.replicas_of(self._flags):
                flags.assign(tf.zeros_like(flags))
            self._buffer = self._current_buffer()

    @contextmanager
    def writing(self, rows: tf.Tensor) -> Iterator[None]:
        """Around a write of the table's own, which may move the buffer.

        Args:
            rows: [N] int64, the rows written.
        """
        if self._flags is None:
            yield
            return
        self._check_buffer()
        ones = tf.ones_like(rows, dtype=tf.uint8)
        for flags in compat.replicas_of(self._flags):
            flags.scatter_update(tf.IndexedSlices(ones, rows))
        yield
        self._buffer = self._current_buffer()

    def mark(self) -> Mark:
        """This moment. Reads and writes one byte a row."""
        self._check_buffer()
        if self._flags is not None:
            for flags in compat.replicas_of(self._flags):
                ages = (flags > 0) & (flags < _OLDEST)
                flags.assign_add(tf.cast(ages, tf.uint8))
            self._number += 1
        return Mark(self._name, self._era, self._number)

    def since(self, mark: Mark) -> np.ndarray | None:
        """The rows written since a mark.

        Args:
            mark: from `mark` of the same table.

        Returns:
            [N] int64 in ascending order, or None when that may be any row.

        Raises:
            ValueError: a mark of another table.
        """
        if not isinstance(mark, Mark) or mark.table != self._name:
            raise ValueError(
                f"table '{self._name}': since={mark!r} is no mark of this table; "
                "pass what its mark() returned"
            )
        self._check_buffer()
        if self._flags is None or mark.era != self._era or mark.number == 0:
            return None
        age = min(self._number - mark.number + 1, _OLDEST)
        flags = compat.raw_variable(self._flags).numpy()
        return np.flatnonzero((flags > 0) & (flags <= age)).astype(np.int64)

    def _check_buffer(self) -> None:
        """Loses track if the buffer isn't the one that the table's own writes left."""
        if self._flags is not None and self._current_buffer() != self._buffer:
            self.lose()

    def _give_replicas_own_buffers(self) -> None:
        """Parts of a mirrored variable start on one buffer; the first write would part them.

        Which of them then keeps the buffer that is known here is anybody's guess.
        """
        parts = compat.replicas_of(self._variable)
        for part in parts if len(parts) > 1 else ():
            nothing = tf.zeros([0, *part.shape[1:]], part.dtype)
            native.write_rows(part, tf.zeros([0], tf.int64), nothing, self._name)

    def _current_buffer(self) -> int:
        return int(native.buffer_serial(compat.raw_variable(self._variable)))
