"""On the TensorFlow that merlin-models is written for, nothing of it is changed."""

import builtins
import importlib
import sys

import merlin.models.tf as mm

from merlin_embeddings.merlin import compat


def test_nothing_to_do():
    assert not compat.needed()
    before = list(sys.meta_path)
    compat.apply()
    assert sys.meta_path == before
    assert not [finder for finder in before if "merlin_embeddings" in type(finder).__module__]
    base = importlib.import_module("merlin.models.tf.models.base")
    for module in (mm, base):
        given = vars(module)["__builtins__"]
        assert given is builtins or given is vars(builtins)
