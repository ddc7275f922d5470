"""What belongs to the rows of a table whose rows move from id to id, and how rows start anew."""

from __future__ import annotations

import itertools
import uuid
import weakref
from typing import Any

import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.native.library import ops

_numbers = itertools.count(1)


class Attached:
    """The variables that share the rows of one table, known to the ops at run time.

    A forward pass may be traced before there is an optimizer: its `reset_rows` fills whatever is
    attached when it runs. Variables are held weakly; those that are gone are left out.

    Args:
        table: the table's name.

    >>> import tensorflow as tf
    >>> vectors, sums = tf.Variable(tf.zeros([4, 2])), tf.Variable([7.0, 7.0, 7.0, 7.0])
    >>> attached = Attached("item")
    >>> attached.attach(sums, fill=0.1)
    >>> rows = tf.constant([1, 3], tf.int64)
    >>> _ = attached.reset_rows(vectors, rows, rows, "constant", (5.0, 0.0), seed=0)
    >>> vectors.numpy()[:, 0].tolist(), sums.numpy().round(1).tolist()
    ([0.0, 5.0, 0.0, 5.0], [7.0, 0.10000000149011612, 7.0, 0.10000000149011612])
    """

    def __init__(self, table: str) -> None:
        self.table = table
        # Graphs know the list by this name; no two tables ever share it.
        self.name = f"{table}_{uuid.uuid4().hex}"
        self._owners: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        weakref.finalize(self, _forget, self.name).atexit = False

    def attach(self, variable: tf.Variable, fill: float) -> None:
        """Makes a variable part of the rows; once more, with another fill, changes the fill.

        Args:
            variable: `[R]` or `[R, ...]` of a floating type, uint8, int32 or int64.
            fill: what it holds for a fresh row.
        """
        _eagerly(ops.merlin_attach, variable=variable.handle, fill=fill, attached=self.name)

    def detach(self, variable: tf.Variable) -> None:
        """Lets a variable go; one that isn't attached is no error."""
        _eagerly(ops.merlin_attach, variable=variable.handle, detach=True, attached=self.name)

    def claim(self, owner: Any) -> None:
        """Says that an optimizer which keeps to the rules of such tables serves this one.

        Args:
            owner: the optimizer, held weakly: when it is gone, so is its claim.
        """
        if owner in self._owners:
            return
        number = next(_numbers)
        self._owners[owner] = number
        weakref.finalize(owner, _claim, self.name, number, False).atexit = False
        _claim(self.name, number, True)

    def unclaim(self, owner: Any) -> None:
        """Takes a claim back; without a claim it is no error."""
        number = self._owners.pop(owner, None)
        if number is not None:
            _claim(self.name, number, False)

    def claimed(self) -> tf.Tensor:
        """Whether there is a claim when this runs: bool scalar."""
        return ops.merlin_claimed(attached=self.name)

    def require_claimed(self, values: tf.Tensor, message: str) -> tf.Tensor:
        """Hands a gradient on, if there is a claim when it is used.

        Args:
            values: the gradient, any shape and dtype.
            message: of the error.

        Returns:
            `values`.

        Raises:
            tf.errors.InvalidArgumentError: there is none. In a graph where nothing uses what this
                returns, it doesn't run.
        """
        return ops.merlin_require_claimed(values=values, attached=self.name, message=message)

    def reset_rows(
        self,
        variable: tf.Variable,
        rows: tf.Tensor,
        keys: tf.Tensor,
        kind: str,
        params: tuple[float, float],
        seed: int,
    ) -> tf.Operation | None:
        """Starts rows anew, in place: the table's vectors, and all that is attached.

        A buffer that somebody else holds is copied first. All is checked before a row is written.

        Args:
            variable: the table's, `[R, D]` float32, bfloat16 or float16.
            rows: `[C]` int64 in `[0, R)`, each once.
            keys: `[C]` int64: the vectors are those that `initial_rows` gives to them.
            kind, params, seed: see `initial_table`.

        Returns:
            The operation; None in eager mode.

        Raises:
            tf.errors.InvalidArgumentError: a row outside the table, or something attached that
                hasn't R rows.
        """
        return ops.merlin_reset_rows(
            variable=variable.handle,
            rows=rows,
            keys=keys,
            attached=self.name,
            dim=int(variable.shape[1]),
            dtype=tf.as_dtype(variable.dtype),
            kind=kind,
            first=params[0],
            second=params[1],
            seed=seed,
            table=self.table,
        )


def _eagerly(op: Any, **arguments: Any) -> None:
    """Runs an op now, beside the variables, also while a graph is traced."""
    with tf.init_scope(), compat.on_host():
        op(**arguments)


def _claim(attached: str, owner: int, claimed: bool) -> None:
    _eagerly(ops.merlin_claim, attached=attached, owner=owner, claimed=claimed)


def _forget(attached: str) -> None:
    _eagerly(ops.merlin_forget_attached, attached=attached)
