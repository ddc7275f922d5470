"""Random generators: those of a model's layers, and those of the process."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from merlin_embeddings import compat

_LAYER = "layer."


def states(variables: Sequence[Any]) -> dict[str, np.ndarray]:
    """What `restore` needs: arrays by name.

    Args:
        variables: the states of the layers' generators.
    """
    found = {f"{_LAYER}{at:05d}": _value(variable) for at, variable in enumerate(variables)}
    version, numbers, gauss = random.getstate()
    found["python"] = np.asarray(numbers, np.uint32)
    found["python.gauss"] = np.asarray([version] if gauss is None else [version, gauss], np.float64)
    kind, *state = np.random.get_state(legacy=True)
    if kind == "MT19937":  # somebody may have set another
        numbers, at, has_gauss, gauss = state
        found["numpy"] = np.asarray(numbers, np.uint32)
        found["numpy.place"] = np.asarray([at, has_gauss], np.int64)
        found["numpy.gauss"] = np.asarray(gauss, np.float64)
    own = compat.process_generator()
    if own is not None:
        found["keras"] = _value(own)
    return found


def check(variables: Sequence[Any], saved: Mapping[str, Any]) -> list[str]:
    """What of the layers' generators doesn't fit; [] if all does."""
    wanted = [list(compat.raw_variable(one).shape) for one in variables]
    there = [list(np.shape(saved[name])) for name in _of_layers(saved)]
    if wanted == there:
        return []
    return [f"random generators of layers: {len(wanted)} in the model, {len(there)} in the file"]


def restore_layers(variables: Sequence[Any], saved: Mapping[str, Any]) -> None:
    """Sets the generators of layers, in their order."""
    for variable, name in zip(variables, _of_layers(saved), strict=True):
        compat.raw_variable(variable).assign(np.asarray(saved[name]))


def restore_process(saved: Mapping[str, Any]) -> None:
    """Sets Python's `random`, NumPy's `np.random` and Keras's own generator."""
    version, *gauss = np.asarray(saved["python.gauss"]).tolist()
    numbers = tuple(int(one) for one in np.asarray(saved["python"]))
    random.setstate((int(version), numbers, gauss[0] if gauss else None))
    if "numpy" in saved:
        at, has_gauss = (int(one) for one in np.asarray(saved["numpy.place"]))
        gauss_ = float(np.asarray(saved["numpy.gauss"]))
        np.random.set_state(("MT19937", np.asarray(saved["numpy"]), at, has_gauss, gauss_))
    own = compat.process_generator()
    if own is not None and "keras" in saved:
        compat.raw_variable(own).assign(np.asarray(saved["keras"]))


def _of_layers(saved: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in saved if name.startswith(_LAYER))


def _value(variable: Any) -> np.ndarray:
    return np.asarray(compat.raw_variable(variable).numpy())
