"""The state of optimizers in weights files."""

from typing import Any

import numpy as np
import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.checkpoint.references import Reference, reference_to
from merlin_embeddings.optimizers.state import State, key
from merlin_embeddings.tables import MovingTable, overwrite, say_size, table_of, write_some


def save(state: State, variables: list, store: Any) -> bool:
    """Writes variables by their number; of slots of tables whose rows move, the rows in use.

    Whose those are, the ids, is written once a table, beside its first slot. Of tables that a file
    has in a checkpoint, the slots are there, too.

    Args:
        state: of the optimizer.
        variables: all that it has.
        store: of the file.

    Returns:
        False, and nothing is written, where all is written as it is: Keras can do that.
    """
    tables, apart = _moving(state), _apart(state)
    _say_size(state)
    if not tables and not apart:
        return False
    rows: dict[int, np.ndarray] = {}
    for index, variable in enumerate(variables):
        raw, table = compat.raw_variable(variable), tables.get(key(variable))
        if key(variable) in apart:
            reference, slot = apart[key(variable)]
            store[str(index)] = reference.to_array()
            store[f"{index}:slot"] = np.frombuffer(slot.encode(), np.uint8)
        elif table is None:
            store[str(index)] = raw.numpy()
        else:
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
        if f"{index}:slot" in store.keys():  # noqa: SIM118
            slot = np.asarray(store[f"{index}:slot"], np.uint8).tobytes().decode()
            Reference.from_array(values).read(variable, name, slot)
        elif id(table) in rows:
            write_some(variable, rows[id(table)], values, name)
        elif key(variable) in of_tables:
            overwrite(variable, values, name)
        else:
            variable.assign(values)


def _apart(state: State) -> dict:
    """Reference and slot's name, by the key of each slot of a table that stands in a checkpoint."""
    found = {}
    for variable in state.variables:
        table = table_of(variable)
        reference = None if table is None else reference_to(table)
        if table is None or reference is None:
            continue
        for slot in state.slots_of(variable):
            [name] = table.slots_among([slot])
            found[key(slot)] = reference, name
    return found


def _say_size(state: State) -> None:
    whole = {
        compat.path_of(variable): state.slots_of(variable)
        for variable, table in ((v, table_of(v)) for v in state.variables)
        if table is not None and not isinstance(table, MovingTable) and reference_to(table) is None
    }
    say_size(whole, "what the optimizer keeps for tables")


def _moving(state: State) -> dict:
    """The tables whose rows move, by the key of each of their slots."""
    tables = state.slots_of_tables().items()
    return {slot: table for slot, table in tables if isinstance(table, MovingTable)}
