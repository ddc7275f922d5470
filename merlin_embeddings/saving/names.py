"""What tables and weights of a model are called in a checkpoint, and found by again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from merlin_embeddings import compat
from merlin_embeddings.tables import DenseTable

# `layers.Embedding` calls its table so where nobody says otherwise.
_NO_NAME = "embeddings"
_NUMBERED = re.compile(r"(.*?)_(\d+)")
_OF_LAYERS = re.compile(r"embedding(_\d+)?")


def table_names(tables: Sequence[DenseTable]) -> list[str]:
    """Logical names of a model's tables.

    A table's own name; of one that has none (`layers.Embedding` without `table_name`) its layer's.
    Tables of several layers that would share a name have their layers' in front,
    `<layer>/<table>`, all of them.

    Args:
        tables: of one model, in a stated order.

    Raises:
        ValueError: two tables can't be told apart.
    """
    paths = [compat.path_of(table.variable).split("/") for table in tables]
    short = [
        table.name if table.name != _NO_NAME or len(path) < 2 else path[-2]
        for table, path in zip(tables, paths, strict=True)
    ]
    names = [
        "/".join([*path[:-1], table.name]) if short.count(name) > 1 else name
        for table, path, name in zip(tables, paths, short, strict=True)
    ]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{names.count(name)} tables of the model are called '{name}': a checkpoint "
                "couldn't tell them apart. Give the tables, or the layers that own them, names of "
                "their own"
            )
    return names


def unique(names: Sequence[str]) -> list[str]:
    """Names, from the second of one name on with its number behind it.

    >>> unique(["a", "b", "a"])
    ['a', 'b', 'a#2']
    """
    counts: dict[str, int] = {}
    found = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        found.append(name if counts[name] == 1 else f"{name}#{counts[name]}")
    return found


def matched(wanted: Sequence[str], there: Sequence[str]) -> dict[str, str]:
    """Which of the names of a checkpoint each name of a model means.

    The same name. Where a model has other names than the checkpoint, as layers that Keras numbers
    have when a model is built a second time in a process, those of the same places: paths whose
    parts have the same names but for numbers, in the same order. Else, as the scopes in front
    depend on who built a layer (`clone_model` builds them otherwise), as many names whose last
    parts are the same, in the same order, where names that both have stand in the same places.

    >>> matched(["dense_2/kernel", "dense_3/kernel"], ["dense/kernel", "dense_1/kernel"])
    {'dense_2/kernel': 'dense/kernel', 'dense_3/kernel': 'dense_1/kernel'}
    >>> matched(["dense/kernel", "out/kernel"], ["deep/dense/kernel", "out/kernel"])
    {'dense/kernel': 'deep/dense/kernel', 'out/kernel': 'out/kernel'}
    >>> matched(["a/kernel", "b/kernel"], ["b/kernel", "c/kernel"])
    {'b/kernel': 'b/kernel'}
    >>> matched(["dense/kernel"], ["dense/kernel", "other/kernel"])
    {'dense/kernel': 'dense/kernel'}
    """
    if set(wanted) != set(there):
        ours, theirs = _without_numbers(wanted), _without_numbers(there)
        if len(set(ours)) == len(ours) and set(ours) == set(theirs):
            by_place = dict(zip(theirs, there, strict=True))
            return {name: by_place[place] for name, place in zip(wanted, ours, strict=True)}
        in_order = dict(zip(wanted, there, strict=False))
        # A name that both have means the same, wherever it stands.
        common = all(in_order.get(name) == name for name in set(wanted) & set(there))
        if common and list(map(_last, wanted)) == list(map(_last, there)):
            return in_order
    return {name: name for name in wanted if name in set(there)}


def matched_tables(wanted: Sequence[str], there: Sequence[str]) -> dict[str, str]:
    """As `matched`; names that people gave are taken for what they are.

    >>> matched_tables(["embedding_4", "item_2"], ["item_1", "embedding"])
    {'embedding_4': 'embedding'}
    """
    found = {name: name for name in wanted if name in set(there)}
    ours = [name for name in wanted if name not in found and _OF_LAYERS.fullmatch(name)]
    theirs = [name for name in there if name not in found and _OF_LAYERS.fullmatch(name)]
    if len(ours) == len(theirs) and not any(map(_OF_LAYERS.fullmatch, found)):
        found |= dict(zip(ours, theirs, strict=True))
    return found


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _without_numbers(paths: Sequence[str]) -> list[str]:
    """Paths whose parts are numbered as they come, each below its own parent."""
    known: dict[tuple[str, str], dict[str, int]] = {}
    found = []
    for path in paths:
        parent = ""
        for part in path.split("/"):
            match = _NUMBERED.fullmatch(part)
            stem = match.group(1) if match else part
            numbers: Mapping[str, int] = known.setdefault((parent, stem), {})
            number = known[parent, stem].setdefault(part, len(numbers))
            parent = f"{parent}/{stem}:{number}"
        found.append(parent)
    return found
