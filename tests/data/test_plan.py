"""Shares and spans: arithmetic, held against all rows counted one by one."""

import numpy as np
import pytest

from merlin_embeddings.data.plan import Share, order_of, spans


def rows_of(pieces, order, start, stop):
    """(piece, row) of rows [start, stop), by writing all of them down."""
    everything = [(piece, row) for piece in order for row in range(pieces[piece])]
    return everything[start:stop]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
@pytest.mark.parametrize(("start", "stop"), [(0, 11), (0, 3), (2, 9), (4, 4), (7, 11)])
def test_spans_are_the_rows(order, start, stop):
    pieces = [4, 1, 0, 6]
    found = [
        (s.piece, row) for s in spans(pieces, order, start, stop) for row in range(s.start, s.stop)
    ]
    assert found == rows_of(pieces, order, start, stop)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("batch_size", [2, 3, 8])
@pytest.mark.parametrize("rows", [5, 16, 17, 23, 24, 25, 100])
def test_shares_are_all_rows_in_as_many_batches(rows, batch_size, count):
    shares = [Share.of(rows, batch_size, index, count) for index in range(count)]
    covered = [row for share in shares for row in range(share.start, share.stop)]
    assert covered == list(range(rows))
    assert len({len(share.sizes) for share in shares}) == 1
    assert all(1 <= size <= batch_size for share in shares for size in share.sizes)
    # Full batches, but for the last two.
    assert all(size == batch_size for share in shares for size in share.sizes[:-2])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_full_batches_only(count):
    shares = [Share.of(25, 4, index, count, drop_remainder=True) for index in range(count)]
    assert {share.sizes for share in shares} == {(4,) * (25 // 4 // count)}
    assert [share.start for share in shares] == [index * 4 * (6 // count) for index in range(count)]


def test_one_process_has_the_usual_batches():
    assert Share.of(10, 4, 0, 1).sizes == (4, 4, 2)
    assert Share.of(8, 4, 0, 1).sizes == (4, 4)
    assert Share.of(1, 4, 0, 1).sizes == (1,)


@pytest.mark.parametrize(("rows", "batch_size", "count"), [(2, 4, 3), (7, 1, 2)])
def test_too_few_rows(rows, batch_size, count):
    with pytest.raises(
        ValueError, match=rf"{rows} rows in batches of {batch_size} can't be shared"
    ):
        [Share.of(rows, batch_size, index, count) for index in range(count)]


def test_too_few_rows_for_full_batches():
    with pytest.raises(ValueError, match=r"7 rows don't fill a batch of 4 in each of 2 processes"):
        Share.of(7, 4, 0, 2, drop_remainder=True)


def test_order():
    assert list(order_of(4, None)) == [0, 1, 2, 3]
    assert sorted(order_of(50, np.random.default_rng(1))) == list(range(50))
    assert order_of(50, np.random.default_rng(1)) == order_of(50, np.random.default_rng(1))
    assert order_of(50, np.random.default_rng(1)) != order_of(50, np.random.default_rng(2))
