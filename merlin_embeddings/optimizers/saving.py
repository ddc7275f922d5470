"""The state of optimizers in weights files."""

from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.optimizers.state import State, key
from merlin_embeddings.tables import MovingTable, overwrite, write_some


def save(state: State, variables: list, store: Any) -> bool:
    """Writes variables by their number; of slots of tables whose rows move, the rows in use.

    Whose those are, the ids, is written once a table, beside its first slot.

    Args:
        state: of the optimizer.
        variables: all that it has.
        store: of the file.

    Returns:
        False, and nothing is written, where no table's rows move: Keras can do that.
    """
    tables = _moving(state)
    if not tables:
        return False
    rows: dict[int, np.ndarray] = {}
    for index, variable in enumerate(variables):
        raw, table = compat.raw_variable(variable), tables.get(key(variable))
        if table is None:
            store[str(index)] = raw.numpy()
            continue
        if id(table) not in rows:
            store[f"{index}:ids"], rows[id(table)] = table.in_use()
        store[str(index)] = raw.sparse_read(tf.constant(rows[id(table)])).numpy()
    return True


def numbers_in(store: Any) -> list[str]:
    """The keys of variables in a file that `save`, or Keras, wrote."""
    return [name for name in list(store.keys()) if name.isdigit()]


def load(state: State, variables: list, store: Any, optimizer: str) -> None:
    """Reads variables that `save`, or Keras, wrote; slots of tables go into the memory they have.

    Slots that come without their ids are whole variables, as `set_weights` gives them.

    Args:
        state: of the optimizer.
        variables: all that it has, as many as the file.
        store: of the file.
        optimizer: what messages call it.

    Raises:
        ValueError: a slot of a table has another shape in the file, or is of ids that have no row,
            since their table isn't that of the file.
    """
    of_tables, moving = state.slots_of_tables(), _moving(state)
    rows: dict[int, np.ndarray] = {}
    for index, variable in enumerate(variables):  # all of it before anything is written
        table = moving.get(key(variable))
        if table is not None and f"{index}:ids" in store.keys():  # noqa: SIM118
            rows[id(table)] = table.rows_of_saved(np.asarray(store[f"{index}:ids"], np.int64))
    for index, variable in enumerate(variables):
        values, name = store[str(index)], f"{optimizer}: slot '{variable.name}'"
        table = moving.get(key(variable))
        if id(table) in rows:
            write_some(variable, rows[id(table)], values, name)
        elif key(variable) in of_tables:
            overwrite(variable, values, name)
        else:
            variable.assign(values)


def _moving(state: State) -> dict:
    """The tables whose rows move, by the key of each of their slots."""
    tables = state.slots_of_tables().items()
    return {slot: table for slot, table in tables if isinstance(table, MovingTable)}
