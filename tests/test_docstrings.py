"""The examples in docstrings run as they stand."""

import doctest
import importlib
import pkgutil

import pytest

import merlin_embeddings

MODULES = [
    "merlin_embeddings",
    *(
        module.name
        for module in pkgutil.walk_packages(merlin_embeddings.__path__, "merlin_embeddings.")
        # The op library, and what Keras 3 can't import.
        if not module.name.startswith(("merlin_embeddings._ops", "merlin_embeddings.merlin"))
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert not results.failed
