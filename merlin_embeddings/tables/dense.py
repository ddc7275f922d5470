"""A table with one row for each key, all in the memory of this process."""

import itertools
import random
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from merlin_embeddings import compat, initializers, native
from merlin_embeddings.config import TableConfig
from merlin_embeddings.tables.changes import Changes, Mark
from merlin_embeddings.tables.entries import Entries

_LINK = "_merlin_embeddings_table"


class Slot(NamedTuple):
    """What an optimizer keeps for each row.

    Attributes:
        variable: [R] or [R, ...], float32.
        fill: its value for a row that was never updated.
    """

    variable: tf.Variable
    fill: float


class _Attached(NamedTuple):
    slot: Slot
    owner: weakref.ref
    name: str  # what the owner calls it


class DenseTable:
    """R rows of D columns: one Keras weight, and the optimizer slots attached to it.

    A row and its slots are one thing: they are read, written and reset together. Layers make
    tables; they are also a way to look into a trained model:

        >>> import numpy as np
        >>> import merlin_embeddings as me
        >>> layer = me.layers.Embedding(100, 8)
        >>> layer.build(None)
        >>> table = me.tables.table_of(layer.trainable_variables[0])
        >>> mark = table.mark()
        >>> table.write(me.tables.Entries(keys=[7], vectors=np.ones((1, 8), "float32")))
        >>> next(table.entries(keys=[7])).vectors.sum()
        8.0

    Args:
        config: what was asked for. The initializer is `config.initializer`; without
            `config.seed`, the seed follows `keras.utils.set_random_seed`.
        rows: R.
        add_weight: the layer's `add_weight`; gets shape, initializer, dtype, trainable,
            autocast, constraint and name.
        dim: D, if it isn't `config.embedding_dim`.

    Attributes:
        ids: the id map that gives ids these rows, where there is one.

    Raises:
        ValueError: R or D below 1, or initial values of another shape.
    """

    ids: Any = None

    def __init__(
        self, config: TableConfig, rows: int, add_weight: Callable, dim: int | None = None
    ) -> None:
        dim = config.embedding_dim if dim is None else dim
        if rows < 1 or dim < 1:
            raise ValueError(
                f"table '{config.name}': a table needs rows and columns, got [{rows}, {dim}]"
            )
        self.config = config
        self.name = config.name
        self.rows = rows
        self.dim = dim
        self._initializer = initializers.get(config.initializer)
        self._seed = random.getrandbits(62) if config.seed is None else config.seed
        with compat.on_host():
            self.variable = add_weight(
                shape=(rows, self.dim),
                initializer=self._initial_values,
                dtype=config.dtype,
                trainable=config.trainable,
                autocast=False,
                constraint=config.constraint,
                name=compat.weight_name(config.name),
            )
        self._attached: dict[str, _Attached] = {}
        self._changes = Changes(self.name, self.variable)
        setattr(self.variable, _LINK, weakref.ref(self))

    def __repr__(self) -> str:
        return f"DenseTable('{self.name}', [{self.rows}, {self.dim}] {self.config.dtype})"

    def resolve(self, rows: tf.Tensor) -> tf.Tensor:
        """Where rows live.

        Args:
            rows: [N] int64, -1 for "no vector".

        Returns:
            [N] int64 lines of `variable`: here, the rows themselves.
        """
        return rows

    # Slots

    @property
    def slots(self) -> Mapping[str, Slot]:
        """The attached slots by name, those of owners that are gone left out."""
        alive = {name: a.slot for name, a in self._attached.items() if a.owner() is not None}
        return MappingProxyType(alive)

    def attach(self, name: str, variable: tf.Variable, fill: float, owner: Any = None) -> str:
        """Makes an optimizer slot part of the rows.

        Several optimizers may train one table in turn: the slots of all of them are part of its
        rows, as long as the optimizers live. Attaching a slot again changes nothing.

        Args:
            name: of the slot.
            variable: [R] or [R, ...], floating point.
            fill: the slot's true starting value (Adagrad's isn't 0); what `reset` writes.
            owner: whose slot it is, held weakly: without it the slot is let go. None: the table's.

        Returns:
            What the slot is called: `name`, or with a number behind it where another owner's slot
            has that name.

        Raises:
            ValueError: when the first axis isn't R.
        """
        shape = tuple(variable.shape)
        if not shape or shape[0] != self.rows:
            raise ValueError(
                f"table '{self.name}': slot '{name}' has shape {list(shape)}, "
                f"its first axis must be the table's {self.rows} rows"
            )
        alive = self.slots
        self._attached = {known: self._attached[known] for known in alive}
        for known, slot in alive.items():
            if slot.variable is variable:
                return known
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        free = next(n for n in itertools.chain([name], numbered) if n not in alive)
        self._attached[free] = _Attached(
            Slot(variable, fill), weakref.ref(self if owner is None else owner), name
        )
        return free

    def slots_among(self, variables: Sequence[Any]) -> Mapping[str, Slot]:
        """The attached slots that are among some variables, by the names that their owner gave.

        What else has slots of the table, optimizers of before that still live, is left out: so a
        slot has one name however often a model was compiled.

        Args:
            variables: those of the optimizer that counts.

        Raises:
            ValueError: two of them have one name, as of two optimizers that train one table.
        """
        wanted = {id(variable) for variable in variables}
        found: dict[str, Slot] = {}
        for one in self._attached.values():
            if one.owner() is None or id(one.slot.variable) not in wanted:
                continue
            if one.name in found:
                raise ValueError(
                    f"table '{self.name}': two optimizers of one model keep a slot '{one.name}' "
                    "for it; a table has one optimizer"
                )
            found[one.name] = one.slot
        return MappingProxyType(found)

    @property
    def seed(self) -> int:
        """Of the initializer: the config's, or what was drawn; a checkpoint gives it back."""
        return self._seed

    @seed.setter
    def seed(self, value: int) -> None:
        self._seed = value

    @property
    def guard(self) -> native.Attached | None:
        """What refuses gradients that no optimizer takes which may; None: any optimizer may."""
        return None

    def claim(self, owner: Any) -> None:
        """Says that an optimizer of this package serves the table, as rows that move need.

        Args:
            owner: the optimizer, held weakly.
        """
        del owner

    def release(self) -> tf.Operation | None:
        """Says that the steps so far have updated their rows: rows that move may go.

        Returns:
            The operation, if there is one.
        """
        return None

    # Rows

    def reset(self, rows: Any) -> None:
        """Gives rows their first value again, vector and slots.

        Args:
            rows: [N] integers in [0, R).

        Raises:
            ValueError: a row out of range, or an initializer that can't make single rows.
        """
        keys = self._as_keys(rows)
        vectors = self._initializer.rows(
            tf.constant(keys), self.dim, self.config.dtype, self._seed, self.name, self.rows
        )
        self._write(keys, vectors, {})

    def entries(
        self, keys: Any = None, since: Mark | None = None, chunk: int = 65536
    ) -> Iterator[Entries]:
        """Reads rows with their slots, in bounded memory.

        Args:
            keys: [N] integers in [0, R), unique: which rows, in this order. None: all.
            since: from `mark`: of those, the rows written after it.
            chunk: the largest number of rows in one Entries.

        Returns:
            An iterator of Entries with the dtypes that the table and its slots have.

        Raises:
            ValueError: a key out of range, a mark of another table, or chunk below 1.
        """
        if chunk < 1:
            raise ValueError(f"table '{self.name}': chunk must be at least 1, got {chunk}")
        wanted = None if keys is None else self._as_keys(keys)
        changed = None if since is None else self._changes.since(since)
        if changed is not None:
            wanted = changed if wanted is None else wanted[np.isin(wanted, changed)]
        count = self.rows if wanted is None else len(wanted)
        return (
            self._read(
                np.arange(at, min(at + chunk, count)) if wanted is None else wanted[at : at + chunk]
            )
            for at in range(0, count, chunk)
        )

    def write(self, entries: Entries) -> None:
        """Writes rows with their slots. Nothing is written when anything is wrong.

        Slots that `entries` doesn't have start again from their fill. Erased rows are reset.
        Scores have no meaning here and are left out.

        Args:
            entries: keys in [0, R), vectors [N, D], slots by the names they are attached under.

        Raises:
            ValueError: a key out of range, another D, an unknown slot, or a slot of another shape.
        """
        keys = self._as_keys(entries.keys)
        erased = self._as_keys(entries.erased)
        if len(keys) and entries.dim != self.dim:
            raise ValueError(
                f"table '{self.name}': the vectors to write have {entries.dim} columns, "
                f"the table has {self.dim}; a table can't change its embedding_dim"
            )
        self._require_slots(entries)
        if len(erased):
            self.reset(erased)
        if len(keys):
            self._write(keys, entries.vectors, entries.slots)

    # Changes

    def mark(self) -> Mark:
        """This moment, for `entries(since=...)`. Costs a pass over one byte a row."""
        return self._changes.mark()

    @property
    def changes(self) -> Changes:
        """Which rows were written; optimizers start it and mark the rows that they update."""
        return self._changes

    # Parts

    def _initial_values(self, shape: Sequence[int], dtype: Any = None):
        return self._initializer.table(
            self.rows, self.dim, self.config.dtype, self._seed, self.name
        )

    def _as_keys(self, keys: Any) -> np.ndarray:
        keys = np.asarray(keys)
        if keys.size == 0:
            return np.empty(0, np.int64)
        if keys.ndim != 1 or keys.dtype.kind not in "iu":
            raise ValueError(
                f"table '{self.name}': keys must be a list of integers, "
                f"got {keys.dtype} of shape {list(keys.shape)}"
            )
        bad = keys[(keys < 0) | (keys >= self.rows)]
        if bad.size:
            raise ValueError(
                f"table '{self.name}': key {bad[0]} is out of range; "
                f"the table has rows 0..{self.rows - 1}"
            )
        return keys.astype(np.int64)

    def _require_slots(self, entries: Entries) -> None:
        for name, values in entries.slots.items():
            if name not in self.slots:
                attached = ", ".join(f"'{known}'" for known in self.slots) or "none"
                raise ValueError(
                    f"table '{self.name}': unknown slot '{name}'; attached slots: {attached}. "
                    "Build the optimizer that owns it first, or leave the slot out"
                )
            expected = tuple(self.slots[name].variable.shape)[1:]
            if values.shape[1:] != expected:
                raise ValueError(
                    f"table '{self.name}': slot '{name}' has rows of shape "
                    f"{list(values.shape[1:])}, expected {list(expected)}"
                )

    def _read(self, keys: np.ndarray) -> Entries:
        rows = tf.constant(keys, tf.int64)

        def read(variable: tf.Variable) -> np.ndarray:
            return compat.raw_variable(variable).sparse_read(rows).numpy()

        slots = {name: read(slot.variable) for name, slot in self.slots.items()}
        return Entries(keys=keys, vectors=read(self.variable), slots=slots)

    def _write(self, keys: np.ndarray, vectors: Any, slots: Mapping[str, np.ndarray]) -> None:
        rows = tf.constant(keys, tf.int64)
        with self._changes.writing(rows):
            _write_rows(self.variable, rows, vectors)
            for name, slot in self.slots.items():
                shape = [len(keys), *slot.variable.shape[1:]]
                values = slots[name] if name in slots else np.full(shape, slot.fill, np.float32)
                _write_rows(slot.variable, rows, values)


def _write_rows(variable: tf.Variable, rows: tf.Tensor, values: Any) -> None:
    values = tf.cast(tf.convert_to_tensor(values), variable.dtype)
    for part in compat.replicas_of(variable):
        native.write_rows(part, rows, values)


def table_of(variable: tf.Variable) -> DenseTable | None:
    """The table that owns a Keras variable, or None."""
    link = getattr(variable, _LINK, None)
    return None if link is None else link()
