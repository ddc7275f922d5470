"""A table whose rows belong to ids for a time: the ids that matter have rows, others don't."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from merlin_embeddings import compat, native
from merlin_embeddings.config import TableConfig
from merlin_embeddings.tables import moving_checks as checks
from merlin_embeddings.tables import moving_entries
from merlin_embeddings.tables.changes import Mark
from merlin_embeddings.tables.dense import DenseTable
from merlin_embeddings.tables.entries import Entries
from merlin_embeddings.tables.overwrite import check_some, write_some

_NONE = np.empty(0, np.int64)


class MovingTable(DenseTable):
    """R rows of D columns that an id map gives to ids and takes from them.

    What is a key elsewhere is an id here, any int64. A row that comes to another id starts anew
    before anyone looks it up: the vector is the initializer's for that id, and all that is attached
    to the row has its first value. Rows that no id has are never read; what they hold has no
    meaning. Behind the rows of ids there may be OOV rows, which ids without one share and which
    entries don't have.

        >>> import tensorflow as tf
        >>> import merlin_embeddings as me
        >>> items = me.layers.Embedding(None, 4, ids=me.ids.ManagedCollision(1000, policy="lru"))
        >>> _ = items(tf.constant([7, 8, -9]), training=True)
        >>> items.table.size(), [int(row) >= 0 for row in items.table.find([8, 10])]
        (3, [True, False])
        >>> sorted(next(items.table.entries()).keys.tolist())
        [-9, 7, 8]

    Args:
        config: what was asked for. The initializer is one that the native library knows.
        build_ids: makes the id map, given the `add_weight` for its state and a name.
        add_weight: as for `DenseTable`.

    Attributes:
        ids: the id map.

    Raises:
        ValueError: as for `DenseTable`; an initializer whose values aren't a function of (seed, id,
            column); or a strategy with several replicas, each of which would move rows by itself.
    """

    # What `save` returns beside the id map's own.
    PARTS = ("vectors", "rows", "salt")

    def __init__(self, config: TableConfig, build_ids: Callable, add_weight: Callable) -> None:
        checks.require_one_replica(config.name)
        self._law = checks.native_law(config)
        super().__init__(config, config.rows, add_weight)
        self._rows_of_slots = native.Attached(self.name)
        self._changes.on_start = lambda flags: self.follow(flags, 1)
        name = compat.weight_name(config.name)

        def add_state(**arguments: Any) -> Any:
            with compat.on_host():
                return add_weight(**{"trainable": False, "autocast": False, **arguments})

        self.ids = build_ids(add_weight=add_state, name=name)
        # The values that ids start with differ from model to model, and stay with a model in its
        # files: a variable is in all of them.
        drawn = 0 if config.seed is not None else random.getrandbits(62)
        self._salt = add_state(
            shape=(),
            initializer=lambda shape, dtype=None: tf.constant(drawn, tf.int64),
            dtype="int64",
            name=f"{name}_salt",
        )

    def __repr__(self) -> str:
        return f"MovingTable('{self.name}', [{self.rows}, {self.dim}] {self.config.dtype})"

    @property
    def variables(self) -> Sequence[Any]:
        """All that the table is, but for slots: vectors, the id map's state, the salt."""
        return [self.variable, *self.ids.variables, self._salt]

    # Ids

    @property
    def capacity(self) -> int:
        """How many ids can have a row at a time."""
        return self.ids.capacity

    @property
    def salt(self) -> int:
        """What tells apart the values that ids start with in one model from those in another."""
        return int(compat.raw_variable(self._salt).numpy())

    @salt.setter
    def salt(self, value: int) -> None:
        compat.raw_variable(self._salt).assign(value)

    def size(self) -> int:
        """How many ids have a row."""
        return int(self.ids.used())

    def find(self, ids: Any) -> np.ndarray:
        """The rows of ids.

        Args:
            ids: [N] integers.

        Returns:
            [N] int64; -1 for an id that has none of its own.
        """
        return self.ids.find(tf.constant(checks.as_ids(self.name, ids))).numpy()

    def upsert(self, ids: Any, vectors: Any = None, scores: Any = None) -> np.ndarray:
        """Gives ids rows whether or not they would be admitted; the policy says who makes room.

        Args:
            ids: [N] integers, each once.
            vectors: [N, D], what the rows hold then; their slots start anew. None: rows that the
                ids had stay as they are, others start as new ids do.
            scores: [N] integers in [0, 2**32), what the policy is to make of the ids; None: as if
                they had been seen once.

        Returns:
            [N] int64, the rows; -1 for ids that the policy left without one.

        Raises:
            ValueError: an id that stands twice, or vectors or scores of another shape; nothing has
                changed then.
        """
        if vectors is not None:
            given = Entries(
                checks.as_ids(self.name, ids), np.asarray(vectors, np.float32), scores=scores
            )
            checks.require_dim(given, self.dim, self.name)
            return self._put(given)
        # Entries check all but the vectors.
        bare = Entries(
            checks.as_ids(self.name, ids), np.zeros([len(ids), 0], np.float32), scores=scores
        )
        return self._room_for(bare)

    def erase(self, ids: Any) -> np.ndarray:
        """Takes ids their rows.

        Args:
            ids: [N] integers; unknown ones are no error.

        Returns:
            [N] bool: which of them had a row.
        """
        return self.ids.erase(tf.constant(checks.as_ids(self.name, ids))).numpy() >= 0

    def restrict(self, **limit: int) -> Any:
        """Takes the ids that matter least their rows.

        Args:
            **limit: one of `size=`, keep so many ids; `max_age=`, forget those not seen for more
                than so many training steps; `min_count=`, forget those counted less often.

        Returns:
            What was forgotten: `ids`, `rows` and `scores`, [N] each.

        Raises:
            ValueError: not exactly one limit, or one that the policy doesn't know.
        """
        return self.ids.restrict(**limit)

    # Steps

    def require_served(self) -> None:
        """Checks, in eager mode, that an optimizer for moving rows took the last gradients.

        Raises:
            ValueError: none did.
        """
        native.require_served(self._rows_of_slots, self.name)

    def start(self, changes: Any) -> tf.Operation | None:
        """Has rows that came to other ids start anew, with all that is attached to them.

        Args:
            changes: what the id map changed: `rows` [C] and `new_ids` [C] int64.

        Returns:
            The operation that a lookup has to wait for; None in eager mode.
        """
        keys = tf.bitwise.bitwise_xor(
            changes.new_ids, tf.convert_to_tensor(compat.raw_variable(self._salt))
        )
        kind, params = self._law
        return self._rows_of_slots.reset_rows(
            compat.raw_variable(self.variable), changes.rows, keys, kind, params, self._fixed_seed
        )

    def follow(self, variable: tf.Variable, fill: float) -> None:
        """Has a variable's rows start anew with the table's, from now on.

        Args:
            variable: [R] or [R, ...], held weakly.
            fill: what a fresh row has in it.
        """
        self._rows_of_slots.attach(compat.raw_variable(variable), fill)

    def attach(self, name: str, variable: tf.Variable, fill: float, owner: Any = None) -> str:
        known = {id(slot.variable) for slot in self.slots.values()}
        called = super().attach(name, variable, fill, owner)
        if id(variable) not in known:
            self.follow(variable, fill)
        return called

    def claim(self, owner: Any) -> None:
        self._rows_of_slots.claim(owner)

    def release(self) -> tf.Operation | None:
        return self.ids.release()

    @property
    def guard(self) -> native.Attached | None:
        return self._rows_of_slots

    # Rows

    def reset(self, rows: Any) -> None:
        """Gives ids that have a row their first vector again, and their slots' first value.

        Args:
            rows: [N] ids; unknown ones are no error, they start fresh when they come.
        """
        ids = checks.as_ids(self.name, rows)
        found = self.find(ids)
        self._start(found[found >= 0], ids[found >= 0])

    def entries(
        self, keys: Any = None, since: Mark | None = None, chunk: int = 65536
    ) -> Iterator[Entries]:
        """Reads ids with their vectors and slots, in bounded memory.

        Args:
            keys: [N] integers, unique: which ids, in this order; those that have no row are left
                out. None: all that have one, with their scores.
            since: from `mark`: of those, the ids whose row was written after it. Ids that lost
                their row since aren't told.
            chunk: the largest number of ids in one Entries.

        Returns:
            An iterator of Entries with the dtypes that the table and its slots have.

        Raises:
            ValueError: a mark of another table, or chunk below 1.
        """
        if chunk < 1:
            raise ValueError(f"table '{self.name}': chunk must be at least 1, got {chunk}")
        changed = None if since is None else self._changes.since(since)
        wanted = None if keys is None else checks.as_ids(self.name, keys)
        return moving_entries.read(self.ids, self._read, wanted, changed, chunk)

    def write(self, entries: Entries) -> None:
        """Writes ids with their vectors, slots and scores. Nothing is written if anything is wrong.

        Ids without a row get one, as with `upsert`: where there are more ids than rows, the policy
        says which stay, and the others are left out. Slots that `entries` doesn't have start again
        from their fill. Erased ids lose their row.

        Args:
            entries: keys are ids; vectors [N, D], slots by the names they are attached under.

        Raises:
            ValueError: another D, an unknown slot, a slot of another shape, or scores that can't
                be.
        """
        if len(entries):
            checks.require_dim(entries, self.dim, self.name)
        self._require_slots(entries)
        checks.require_scores(entries, self.name)
        if len(entries.erased):
            self.erase(entries.erased)
        if len(entries):
            self._put(entries)

    # Files

    def in_use(self) -> tuple[np.ndarray, np.ndarray]:
        """What files hold: ids [K] int64, and rows [K + O] int64, theirs and then the OOV rows."""
        known = list(self.ids.known())
        ids = np.concatenate([_NONE, *(some.ids for some in known)])
        rows = [*(some.rows for some in known), np.arange(self.capacity, self.rows)]
        return ids, np.concatenate([_NONE, *rows])

    def rows_of_saved(self, ids: np.ndarray) -> np.ndarray:
        """The rows [K + O] of what a file holds of ids [K] and of the OOV rows.

        Raises:
            ValueError: an id has no row here, so that the file is of another table, or the ids
                haven't been loaded yet.
        """
        rows = self.find(ids)
        if (rows < 0).any():
            raise ValueError(
                f"table '{self.name}': the file has slots of id {ids[rows < 0][0]}, which has no "
                "row; load the weights that belong to them first"
            )
        return np.concatenate([rows, np.arange(self.capacity, self.rows)]).astype(np.int64)

    def save(self) -> dict[str, np.ndarray]:
        """What `load` needs to be this table, but for slots.

        Returns:
            Arrays by name: "vectors" [N, D] and "rows" [N] of the rows in use, "salt", and the id
            map's own.
        """
        _, rows = self.in_use()
        state = {f"ids.{name}": value for name, value in self.ids.state().items()}
        vectors = compat.raw_variable(self.variable).sparse_read(tf.constant(rows)).numpy()
        salt = np.asarray(compat.raw_variable(self._salt).numpy())
        return {"vectors": vectors, "rows": rows, "salt": salt, **state}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Becomes what `save` saw.

        Args:
            saved: arrays, or data sets of a file, by name.

        Raises:
            ValueError: they are of another table, or can't be; nothing has changed then.
        """
        rows = np.asarray(saved["rows"], np.int64)
        check_some(self.variable, rows, saved["vectors"], f"table '{self.name}'")
        self.ids.restore(
            {
                name.removeprefix("ids."): np.asarray(value)
                for name, value in saved.items()
                if name.startswith("ids.")
            }
        )
        compat.raw_variable(self._salt).assign(np.asarray(saved["salt"], np.int64))
        write_some(self.variable, rows, saved["vectors"], f"table '{self.name}'")
        self._changes.lose()

    # Parts

    @property
    def _fixed_seed(self) -> int:
        return 0 if self.config.seed is None else self.config.seed

    def _initial_values(self, shape: Sequence[int], dtype: Any = None) -> tf.Tensor:
        kind, params = self._law
        return native.initial_table(
            self.rows,
            self.dim,
            tf.as_dtype(self.config.dtype),
            kind,
            params,
            self._seed,
            f"{self.name}/oov",
            self.rows - self._oov_rows,
        )

    @property
    def _oov_rows(self) -> int:
        return int(getattr(self.config.ids, "oov_rows", 0) or 0)

    def _room_for(self, entries: Entries) -> np.ndarray:
        """Rows of ids; those that had none start anew."""
        checks.require_scores(entries, self.name)
        scores = None if entries.scores is None else tf.constant(entries.scores, tf.int64)
        rows, changes = self.ids.upsert(tf.constant(entries.keys), scores)
        self._start(changes.rows.numpy(), changes.new_ids.numpy())
        return rows.numpy()

    def _put(self, entries: Entries) -> np.ndarray:
        rows = self._room_for(entries)
        kept = rows >= 0
        slots = {name: values[kept] for name, values in entries.slots.items()}
        self._write(rows[kept], entries.vectors[kept], slots)
        return rows

    def _start(self, rows: np.ndarray, ids: np.ndarray) -> None:
        """As `start`, outside of steps: the buffer may move."""
        rows = tf.constant(rows, tf.int64)
        with self._changes.writing(rows):
            self.start(_Coming(rows, tf.constant(ids, tf.int64)))


class _Coming(NamedTuple):
    """Rows, and the ids that they come to."""

    rows: tf.Tensor
    new_ids: tf.Tensor
