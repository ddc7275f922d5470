"""The example's parts: who met what when, the measures, and that it learns."""

import movielens_data
import numpy as np
import pandas as pd
import pytest
import youtube_dnn
from sklearn.metrics import ndcg_score, roc_auc_score
from youtube_dnn_data import sequences
from youtube_dnn_models import POOLINGS, TABLE, bytes_of, inputs_of, ranking, retrieval

RATINGS = pd.DataFrame(
    [  # user, item, timestamp, like
        ("b", 7, 30, 1),
        ("a", 7, 10, 1),
        ("b", 9, 20, 0),
        ("a", 8, 20, 0),
        ("b", 7, 40, 1),
        ("a", 9, 30, 1),
        ("b", 5, 50, 0),
        ("a", 7, 40, 1),
        ("b", 8, 10, 1),
    ],
    columns=["user", "item", "timestamp", "like"],
)


def test_sequences():
    """a: 7 8 9 7, b: 8 9 7 7 5; the last is the test, the last but one the validation."""
    parts = sequences(RATINGS, max_length=3)
    # Training has 7, 8 for a and 8, 9, 7 for b: twice 8 and 7, once 9, never 5.
    ids = dict(zip([7, 8, 9, 5], [1, 2, 3, 4], strict=True))
    assert (parts.users, parts.rows) == (2, 5)

    def rows(histories):
        return [[0] * (3 - len(h)) + [ids[i] for i in h] for h in histories]

    assert parts.train.item.tolist() == [ids[i] for i in (8, 9, 7)]
    assert parts.train.history.tolist() == rows([[7], [8], [8, 9]])
    assert parts.valid.item.tolist() == [ids[i] for i in (9, 7)]
    assert parts.valid.history.tolist() == rows([[7, 8], [8, 9, 7]])
    assert parts.test.history.tolist() == rows([[7, 8, 9], [9, 7, 7]])
    assert parts.test.liked.tolist() == [[True, False, True], [False, True, True]]
    assert parts.test.user.tolist() == [0, 1]
    assert parts.test.like.tolist() == [1, 0]
    assert [seen.tolist() for seen in parts.test.seen] == [[1, 2, 3], [2, 3, 1, 1]]


def test_measures():
    found = np.array([[5, 6, 7], [1, 2, 3], [4, 8, 9]])
    measures = youtube_dnn.hits(found, np.array([6, 4, 9]))
    assert measures["recall@10"] == pytest.approx(2 / 3)
    relevance, scores = np.array([[0, 1, 0], [0, 0, 1]]), np.array([[3, 2, 1], [3, 2, 1]])
    assert measures["NDCG@10"] == pytest.approx(2 / 3 * ndcg_score(relevance, scores))
    rng = np.random.default_rng(0)
    likes, scores = rng.integers(2, size=200), rng.integers(9, size=200)  # many ties
    assert youtube_dnn.auc(likes, scores) == pytest.approx(roc_auc_score(likes, scores))


@pytest.fixture(scope="module")
def small():
    """The first 60 users."""
    ratings = movielens_data.load()
    return sequences(ratings[ratings["user"] <= 60])


def test_retrieval_learns_and_finds_nothing_seen(small):
    """Better than the most popular films, which an untrained model doesn't know either."""
    kind = "recency-weighted items"
    model, tower = retrieval(kind, small, seed=0)
    items = model.get_layer("softmax").items
    inputs = inputs_of(model, small.train, liked=False)
    model.optimizer.learning_rate = 0.01
    history = model.fit(inputs, np.zeros(len(small.train)), 256, epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    found = youtube_dnn.retrieved(tower, items, small.test)
    assert found.shape == (60, 10)
    assert all(not set(f) & {0, *seen} for f, seen in zip(found, small.test.seen, strict=True))
    assert youtube_dnn.hits(found, small.test.item)["recall@10"] > 10 / small.rows


def test_no_table_of_users(small):
    of_items = 4 * small.rows * 32
    for kind in POOLINGS:
        assert bytes_of(retrieval(kind, small, 0)[0]) == of_items
    assert bytes_of(retrieval(TABLE, small, 0)[0]) == of_items + 4 * 60 * 32
    assert bytes_of(ranking("items", small, 0)) == 4 * small.rows * 16


def test_the_program_prints_both_tables(small, monkeypatch, capsys):
    ratings = movielens_data.load()
    monkeypatch.setattr(movielens_data, "load", lambda cache: ratings[ratings["user"] <= 40])
    monkeypatch.setattr(youtube_dnn, "POOLINGS", {"mean of items": POOLINGS["mean of items"]})
    assert youtube_dnn.main(["--seeds", "0", "--epochs", "1", "--ranking-epochs", "1"]) == 0
    out = capsys.readouterr().out
    assert "the last film of 40 users" in out and "likes among the last 400 ratings" in out
    rows = [line.split("|")[1].strip() for line in out.splitlines() if line.startswith("| ")]
    kinds = [TABLE, "mean of items", "users", TABLE, "target attention over items"]
    assert rows == ["users", *kinds]
