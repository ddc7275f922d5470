"""Which variables of a TensorFlow checkpoint are tables, and what they are called.

A checkpoint has a graph of objects (a TrackableObjectGraph) that tells of each variable which
objects hold it under which name. Keras' Embedding holds its variable as `embeddings`, and is called
as the variable says (`items/embeddings`). merlin-models' EmbeddingTable holds such a layer as
`table`, or ours, and is itself held under the name of its table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from merlin_embeddings.checkpoint.foreign import varints

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_HELD_AS = ("embeddings", "_embeddings", "table:embeddings")
_KERAS_2 = {"m": "momentum", "v": "velocity"}


@dataclass
class Table:
    """A variable that is a table.

    Attributes:
        name: of the table.
        key: of its tensor in the checkpoint.
        variable: what the variable itself is called.
        slots: keys of the tensors of its slots, by name.
        moving: whether its rows move from id to id.
    """

    name: str
    key: str
    variable: str
    slots: dict[str, str] = field(default_factory=dict)
    moving: bool = False


@dataclass
class _Node:
    children: list[tuple[int, str]] = field(default_factory=list)
    name: str = ""
    key: str = ""
    slots: list[tuple[int, str, int]] = field(default_factory=list)
    held: list[tuple[int, str]] = field(default_factory=list)


def tables_by_key(keys: Iterable[str]) -> list[Table]:
    """The tables of a checkpoint that has no graph, by the names of its variables."""
    found = [key for key in keys if key.rpartition("/")[2] in _HELD_AS]
    return [Table(key.rpartition("/")[0] or key, key, key) for key in found]


def tables_of(graph: bytes) -> list[Table]:
    """The tables of a checkpoint.

    Args:
        graph: its graph of objects.

    Raises:
        ValueError: it is damaged.
    """
    nodes = _nodes(graph)
    slots = {slot for node in nodes for _, _, slot in node.slots}
    tables: dict[int, Table] = {}
    for number, node in enumerate(nodes):
        if node.key and number not in slots:
            name = _table_name(nodes, node)
            if name is not None:
                tables[number] = Table(name, node.key, node.name)
    # Optimizers up to Keras 2.10 tell of their slots; later ones call variables so that it shows.
    for node in nodes:
        for variable, slot, place in node.slots:
            if variable in tables and 0 <= place < len(nodes) and nodes[place].key:
                tables[variable].slots[_KERAS_2.get(slot, slot)] = nodes[place].key
    by_name = {node.name: node.key for node in nodes if node.key}
    for table in tables.values():
        table.slots.update(_slots_by_name(table, by_name))
        # Of which they draw the values that ids start with.
        table.moving = f"{table.variable}_salt" in by_name
    return list(tables.values())


def _table_name(nodes: list[_Node], node: _Node) -> str | None:
    """What the table is called that a variable is; None: it is none."""
    if _is_slot(node, nodes):
        return None
    for holder, held_as in node.held:
        of_merlin = [place for place, local in nodes[holder].held if local == "table"]
        if of_merlin and held_as not in _HELD_AS:
            return held_as
        if held_as not in _HELD_AS:
            continue
        for place in of_merlin:
            names = [local for _, local in nodes[place].held if _says_something(local)]
            if names:
                return names[0]
        return node.name.rpartition("/")[0] or _path(node.key).rpartition("/")[0]
    if node.name.rpartition("/")[2] in _HELD_AS:
        return node.name.rpartition("/")[0]
    return None


def _is_slot(node: _Node, nodes: list[_Node]) -> bool:
    """Whether it is called as a slot of Keras 2.11 and later: `<optimizer>/<slot>/<variable>`."""
    others = {other.name for other in nodes if other.key}
    parts = node.name.split("/")
    return any("/".join(parts[at:]) in others for at in range(2, len(parts)))


def _says_something(local: str) -> bool:
    """Whether a name under which an object is held is more than its place in a list."""
    place = local.rpartition("-")[2]
    return not local.startswith("_") and not place.isdigit() and local != "layer"


def tell_apart(tables: list[Table]) -> None:
    """Has tables that would have one name be called by their paths."""
    names = [table.name for table in tables]
    for table in tables:
        if names.count(table.name) > 1:
            table.name = _path(table.key)


def _slots_by_name(table: Table, by_name: Mapping[str, str]) -> dict[str, str]:
    """Keys of the slots that Keras 2.11 and later keep for a variable."""
    slots = {}
    owner = f"{table.variable.replace('/', '_')}_"
    for name, key in by_name.items():
        optimizer, _, rest = name.partition("/")
        if optimizer and rest.startswith(owner):
            slots[rest.removeprefix(owner)] = key
        elif rest.endswith(f"/{table.variable}"):
            slot = rest.removesuffix(f"/{table.variable}")
            if "/" not in slot:
                slots[_KERAS_2.get(slot, slot)] = key
    return slots


def _path(key: str) -> str:
    return key.removesuffix(VALUE)


# Bytes


def _nodes(graph: bytes) -> list[_Node]:
    nodes = [_node(_message(value)) for number, value in varints.fields(graph) if number == 1]
    for number, node in enumerate(nodes):
        for child, local in node.children:
            if not 0 <= child < len(nodes):
                raise ValueError(f"object {number} has an object {child} of {len(nodes)}")
            nodes[child].held.append((number, local))
    return nodes


def _node(message: bytes) -> _Node:
    node = _Node()
    for number, value in varints.fields(message):
        if number > 3:
            continue
        told = dict(varints.fields(_message(value)))
        if number == 1:
            node.children.append((_number(told.get(1, 0)), _text(told.get(2, b""))))
        elif number == 2 and _text(told.get(1, b"")) == "VARIABLE_VALUE":
            node.name = _text(told.get(2, b"")).removesuffix(":0")
            node.key = _text(told.get(3, b""))
        elif number == 3:
            slot = _text(told.get(2, b""))
            node.slots.append((_number(told.get(1, 0)), slot, _number(told.get(3, 0))))
    return node


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("a message where a number should be")
    return value


def _text(value: int | bytes) -> str:
    return _message(value).decode()
