"""The example for merlin-models: pairs of trainings from one start on a part of MovieLens-100k."""

import merlin_dlrm
import merlin_training as training
import numpy as np
import pytest


@pytest.fixture(scope="module")
def ratings(tmp_path_factory):
    return training.load(tmp_path_factory.mktemp("ratings"), rows=20_000)


def test_auc_counts_pairs():
    labels, scores = np.array([1, 0, 1, 0, 0]), np.array([0.9, 0.5, 0.5, 0.1, 0.95])
    pairs = [
        1.0 * (good > bad) + 0.5 * (good == bad)
        for good in scores[labels == 1]
        for bad in scores[labels == 0]
    ]
    assert training.auc(labels, scores) == pytest.approx(np.mean(pairs))


def test_an_epoch_has_each_row_once_in_its_own_order(ratings):
    orders = [
        np.concatenate([x["user"].numpy() for x, _ in ratings.epoch(seed, number, 4096)]).ravel()
        for seed, number in ((0, 0), (0, 0), (0, 1))
    ]
    assert all(len(order) == len(ratings.train) for order in orders)
    np.testing.assert_array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])
    np.testing.assert_array_equal(np.sort(orders[0]), np.sort(orders[2]))


def test_pairs_reach_the_same_auc(ratings):
    models = training.start(ratings, training.dlrm, "adagrad", seed=0)
    tables = {type(layer) for layer in models["stock"]._flatten_layers()}
    assert training.mem.EmbeddingTable not in tables and training.mm.EmbeddingTable in tables
    before = [training.test_auc(ratings, model) for model in models.values()]
    np.testing.assert_allclose(before, before[0], atol=1e-6)
    for model in models.values():
        training.fit(ratings, model, seed=0, epochs=3, batch_size=512)
    after = {kind: training.test_auc(ratings, model) for kind, model in models.items()}
    assert after["stock"] > 0.57  # it has learned: a coin gets 0.5
    for kind in ("tables", "both"):
        assert abs(after[kind] - after["stock"]) < merlin_dlrm.MOST_DIFFERENCE


def test_the_example_names_seeds_that_part():
    runs = [
        merlin_dlrm.Run("stock", 0, 0.7, 10.0),
        merlin_dlrm.Run("tables", 0, 0.7019, 20.0),
        merlin_dlrm.Run("both", 0, 0.6979, 30.0),
    ]
    [fault] = merlin_dlrm.faults_of(runs)
    assert "Seed 0, merlin_embeddings, our optimizer: the test AUC 0.6979" in fault
    table = merlin_dlrm.table(runs, "title")
    assert list(table.columns[-1].cells) == ["1.00", "2.00", "3.00"]
    assert list(table.columns[2].cells) == ["", "0.00190", "0.00210"]
