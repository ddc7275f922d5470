"""State of optimizers in SavedModels, which Keras 2 writes and doesn't read.

`keras.models.load_model` revives the optimizer of a SavedModel as an empty shell, and beside it
`compile` makes a new one from its config. Here the shell holds the variables under a name that is
in the config too, so that the new optimizer finds its state.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# The name's key in the config of an optimizer that has a state, and the shell's attribute.
KEY = "saved_state"


class SavedState:
    """What ties an optimizer to its variables in SavedModels."""

    def __init__(self) -> None:
        self._node = _Node(uuid.uuid4().hex)
        self._loaded: list[np.ndarray] = []

    def write(self, variables: Sequence[tf.Variable]) -> dict[str, Any]:
        """Children to add to an optimizer's in a SavedModel, for these variables to be found."""
        self._node.variables = dict(enumerate(variables))
        return {KEY: self._node}

    def config(self) -> dict[str, Any]:
        """What the config of an optimizer with a state has to have for it to be found.

        Keras asks for configs before and after it asks for children, and may keep the first.
        """
        return {KEY: self._node.name}

    def find(self, name: str | None) -> None:
        """Looks for variables of this name in the SavedModel that is being loaded."""
        node = _nodes.pop((threading.get_ident(), name or ""), None)
        if node is not None:
            self._loaded = [node.variables[i].numpy() for i in sorted(node.variables)]

    def take(self) -> list[np.ndarray]:
        """What was found, once; nothing, if nothing was."""
        loaded, self._loaded = self._loaded, []
        return loaded


class _Node(tf.__internal__.tracking.Trackable):
    """An optimizer's variables in the graph of objects of a SavedModel."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.variables: dict[int, tf.Variable] = {}

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        del save_type, kwargs
        return {f"{self.name}:{index}": one for index, one in self.variables.items()}

    def _lookup_dependency(self, name: str, *args: Any) -> Any:
        return self._trackable_children().get(name)

    def _revive(self, child: str, variable: tf.Variable) -> None:
        self.name, _, index = child.rpartition(":")
        self.variables[int(index)] = variable
        _nodes[threading.get_ident(), self.name] = self


# Of what is being loaded, by thread and name, until an optimizer finds it or the model is gone.
_nodes: weakref.WeakValueDictionary[tuple[int, str], _Node] = weakref.WeakValueDictionary()

# There is no public way to say what a loaded object is; Keras does it like this.
_registry = tf.__internal__.saved_model.load
_registry.register_revived_type(
    "merlin_embeddings_optimizer_state",
    lambda one: isinstance(one, _Node),
    versions=[
        _registry.VersionedTypeRegistration(
            object_factory=lambda proto: _Node(),
            version=1,
            min_producer_version=1,
            min_consumer_version=1,
            setter=_Node._revive,
        )
    ],
)
