"""What an optimizer knows of its variables."""

import re
from collections.abc import Hashable, Sequence
from typing import Any

import tensorflow as tf

from merlin_embeddings import compat
from merlin_embeddings.optimizers.slots import SlotSpec
from merlin_embeddings.tables import DenseTable, table_of


class State:
    """Slots, changed rows and exclusions by variable; out of sight of Keras' attribute tracking."""

    def __init__(self) -> None:
        self.variables: list = []
        self._slots: dict[Hashable, list] = {}
        self._flags: dict[Hashable, tf.Variable] = {}
        self._undecayed: set = set()
        self._undecayed_names: re.Pattern | None = None

    def add(self, variable: tf.Variable, slots: Sequence[tf.Variable]) -> None:
        """Makes a variable known by its slots, in the order of the rule's specs."""
        self.variables.append(variable)
        self._slots[key(variable)] = list(slots)

    def require_known(self, variables: Sequence[tf.Variable], optimizer: str) -> None:
        """Raises ValueError, naming the variable, for one that was never added."""
        for variable in variables:
            if key(variable) not in self._slots:
                raise ValueError(
                    f"{optimizer}: unknown variable '{compat.path_of(variable)}'; an optimizer "
                    "updates the variables that it was built with. Compile the model again with a "
                    "new one"
                )

    def attach(self, variable: tf.Variable, specs: Sequence[SlotSpec], owner: Any) -> None:
        """Makes the slots part of the variable's table, if it has one."""
        table = table_of(variable)
        if table is None:
            return
        for spec, slot in zip(specs, self.slots_of(variable), strict=True):
            table.attach(spec.name, slot, spec.fill, owner=owner)
        self._flags[key(variable)] = table.changes.start()
        table.claim(owner)

    def slots_of(self, variable: tf.Variable) -> list:
        """The slots of a variable."""
        return self._slots[key(variable)]

    def slots_of_tables(self) -> dict[Hashable, DenseTable]:
        """The tables of all slots that are part of one, by the key of the slot."""
        tables = [(variable, table_of(variable)) for variable in self.variables]
        return {
            key(slot): table
            for variable, table in tables
            if table is not None
            for slot in self.slots_of(variable)
        }

    def flags_of(self, variable: tf.Variable) -> tf.Variable:
        """What the native update marks rows in; nobody reads it for variables without a table."""
        if key(variable) not in self._flags:
            with tf.init_scope():
                self._flags[key(variable)] = tf.Variable(
                    tf.zeros([variable.shape[0]], tf.uint8), trainable=False
                )
        return self._flags[key(variable)]

    def all_flags(self) -> list[tf.Variable]:
        """The flags of all variables that have some."""
        return list(self._flags.values())

    def exclude(self, variables: Sequence[tf.Variable] | None, names: Sequence[str] | None) -> None:
        """Excludes variables from decay, themselves or by patterns of their names."""
        self._undecayed = {key(variable) for variable in variables or ()}
        self._undecayed_names = re.compile("|".join(names)) if names else None

    def is_excluded(self, variable: tf.Variable) -> bool:
        """Whether a variable is excluded from decay."""
        names = self._undecayed_names
        return key(variable) in self._undecayed or (
            names is not None and names.search(variable.name) is not None
        )


def key(variable: tf.Variable) -> Hashable:
    """What a variable is known by: of a mirrored one the first part, whichever replica asks."""
    return compat.replicas_of(variable)[0].ref()
