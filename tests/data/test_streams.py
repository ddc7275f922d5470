"""Reading ahead: order, errors, and threads that end."""

import itertools
import threading

import pytest

from merlin_embeddings.data.streams import read_ahead


def readers():
    return [t for t in threading.enumerate() if t.name.startswith("merlin-embeddings-reader")]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_the_same_items(count):
    assert list(read_ahead(iter(range(count)), 2)) == list(range(count))


def test_so_far_ahead_and_no_further():
    made = itertools.count()
    items = read_ahead(made, 3)
    assert next(items) == 0
    items.close()
    for thread in readers():
        thread.join(timeout=30)
    assert next(made) <= 1 + 3 + 1  # the item taken, three ahead; one more may have been on its way


def test_a_stream_that_is_left_leaves_no_thread():
    items = read_ahead(itertools.count(), 2)
    next(items)
    assert readers()
    del items
    for thread in readers():
        thread.join(timeout=30)
    assert not readers()


def test_errors_come_where_they_belong():
    def items():
        yield 1
        raise ValueError("the second")

    stream = read_ahead(items(), 2)
    assert next(stream) == 1
    with pytest.raises(ValueError, match="the second"):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)
