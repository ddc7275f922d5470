"""Memory of stacks: used again, but never while somebody has a view of it."""

import numpy as np

from merlin_embeddings.data.layout import Memory

SHAPE, DTYPE = (2, 40_000), np.dtype("float64")


def address(array):
    return array.ctypes.data


def test_aligned():
    memory = Memory()
    for shape in [(3, 5), SHAPE]:
        assert address(memory.empty(shape, DTYPE)) % 64 == 0


def test_free_memory_is_used_again():
    memory = Memory()
    first = address(memory.empty(SHAPE, DTYPE))
    assert address(memory.empty(SHAPE, DTYPE)) == first
    assert address(memory.empty((40_000, 2), DTYPE)) == first  # as many bytes


def test_memory_that_somebody_has_is_not():
    memory = Memory()
    views = [memory.empty(SHAPE, DTYPE)[0, 5:] for _ in range(20)]
    for number, view in enumerate(views):
        view[:] = number
    assert [set(view) for view in views] == [{number} for number in range(20)]


def test_copy():
    memory = Memory()
    array = np.arange(12)[::2]
    copy = memory.copy(array)
    array[:] = 0
    assert copy.tolist() == [0, 2, 4, 6, 8, 10]
