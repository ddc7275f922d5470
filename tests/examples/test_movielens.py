"""The example's parts, on a small slice of the real ratings."""

import os
from pathlib import Path

import movielens
import movielens_data as data
import numpy as np
import pytest
import tensorflow as tf
from movielens_models import CrossNetwork, DotInteraction, keras_layer, merlin_layer
from movielens_training import Experiment, copy_weights, create, fit, predict
from movielens_workflow import CATEGORIES, NUMBERS, nvt, prepare
from sklearn.metrics import roc_auc_score

import merlin_embeddings as me


@pytest.fixture(scope="module")
def ratings():
    return data.load()


@pytest.fixture(scope="module")
def parts(ratings):
    """The first 5,000 ratings of the file, split at random."""
    return data.split(ratings.head(5000))


@pytest.fixture(scope="module")
def small(parts, tmp_path_factory):
    """The same, prepared."""
    return prepare(parts, tmp_path_factory.mktemp("ratings"))


def first_batch(prepared, part="train", size=100):
    return next(iter(prepared.batches(part, size)))


def test_the_ratings_are_those_of_movielens_100k(ratings):
    assert len(ratings) == 100_000
    # The counts in the data set's README.
    assert ratings["user"].nunique() == 943
    assert ratings["item"].nunique() == 1682
    assert ratings["occupation"].nunique() == 21
    genres = ratings["genres"].explode()
    assert genres.nunique() == 19
    assert ratings["genres"].str.len().agg(["min", "max"]).tolist() == [1, 6]
    assert ratings["like"].sum() == 55_375
    # The first line: user 196 gave film 242 ("Kolya", 1996) 3 stars on a Thursday, 15:55 UTC.
    first = ratings.iloc[0]
    assert (first["user"], first["item"], first["age"], first["year"]) == (196, 242, 49, 1996)
    assert (first["hour"], first["weekday"], first["like"]) == (15, 3, 0)


@pytest.mark.parametrize("by", ["random", "time"])
def test_a_split_has_each_rating_once(ratings, by):
    split = data.split(ratings, by)
    assert [len(split[part]) for part in ("train", "valid", "test")] == [72_000, 8_000, 20_000]
    whole = np.concatenate([part[["user", "item", "timestamp"]] for part in split.values()])
    assert len(np.unique(whole, axis=0)) == 100_000
    if by == "time":
        times = {name: part["timestamp"] for name, part in split.items()}
        assert times["train"].max() <= times["valid"].min()
        assert times["valid"].max() <= times["test"].min()


def test_ids_follow_the_frequency_in_training(parts, small):
    """Categorify: 0 pads, 1 is null, 2 is what training hasn't, the rest is most frequent first."""
    columns = {column.name: column for column in small.schema}
    assert set(columns) == {*CATEGORIES, "age_group", *NUMBERS, "like"}
    train = parts["train"]
    for name in CATEGORIES:
        seen = train[name].explode() if name == "genres" else train[name]
        assert columns[name].properties["domain"]["max"] == seen.nunique() + 2
    genres = train["genres"].explode()
    counts = genres.value_counts()
    features, _ = first_batch(small)
    for bag, names in zip(features["genres"].to_list(), train["genres"], strict=False):
        assert [counts.iloc[i - 3] for i in bag] == [counts[name] for name in names]


def test_films_that_training_has_not_are_out_of_vocabulary(parts, small):
    features, _ = first_batch(small, "test", 1000)
    known = parts["test"]["item"].isin(parts["train"]["item"]).to_numpy()
    assert 0 < np.sum(~known) < 1000
    np.testing.assert_array_equal(features["item"] == 2, ~known)


def test_numbers_have_the_mean_and_variance_of_training(parts, small):
    features, _ = first_batch(small, "test", 1000)
    for name in NUMBERS:
        train, test = parts["train"][name], parts["test"][name]
        filled = test.fillna(train.median())
        expected = (filled - train.mean()) / train.std(ddof=0)
        np.testing.assert_allclose(features[name], expected, atol=2e-3)


def test_batches_are_shuffled_anew_each_epoch_and_alike_each_run(small):
    def epochs(seed):
        dataset = small.batches("valid", 32, seed)
        assert dataset.cardinality() == 13  # 400 ratings
        return [np.concatenate([x["user"] for x, _ in dataset]) for _ in range(2)]

    first, second = epochs(seed=5)
    in_order = np.concatenate([x["user"] for x, _ in small.batches("valid")])
    np.testing.assert_array_equal(np.sort(first), np.sort(in_order))
    np.testing.assert_array_equal(np.sort(second), np.sort(in_order))
    assert (first != second).any()
    np.testing.assert_array_equal(epochs(seed=5), [first, second])
    assert (epochs(seed=6)[0] != first).any()


def test_without_a_seed_batches_keep_the_order(parts, small):
    np.testing.assert_array_equal(small.likes("test"), parts["test"]["like"])


def test_a_file_that_is_not_the_expected_one_is_named(tmp_path):
    for name in data.SHA256:
        (tmp_path / name).write_text("user_id:token\n")
    with pytest.raises(data.FetchError, match=r"ml-100k\.inter has the sha256 .*delete the file"):
        data.fetch(tmp_path)


def test_a_failed_fetch_says_what_was_tried_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert movielens.main(["--cache", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "recbole==1.2.1" in message and str(tmp_path) in message
    assert os.listdir(tmp_path) == []


def test_dot_interaction_takes_each_pair_once():
    vectors = np.random.default_rng(0).normal(size=(5, 4, 3)).astype(np.float32)
    pairs = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]
    expected = [[row[i] @ row[j] for i, j in pairs] for row in vectors]
    np.testing.assert_allclose(DotInteraction()(vectors), expected, rtol=1e-5)


def test_cross_network_is_dcn_v2s_formula():
    x0 = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    layer = CrossNetwork(depth=2)
    result = layer(x0)
    kernel_0, bias_0, kernel_1, bias_1 = layer.get_weights()
    x1 = x0 * (x0 @ kernel_0 + bias_0) + x0
    np.testing.assert_allclose(result, x0 * (x1 @ kernel_1 + bias_1) + x1, rtol=1e-5)


def test_both_kinds_of_embeddings_give_a_column_its_vector(small):
    inputs, _ = first_batch(small)
    theirs = keras_layer(small.schema, dim=4, seed=1)
    expected = theirs(inputs)
    tables = {name: table.embeddings.numpy() for name, table in theirs.tables.items()}
    np.testing.assert_array_equal(expected["user"], tables["user"][inputs["user"]])
    means = [tables["genres"][bag].mean(axis=0) for bag in inputs["genres"].to_list()]
    np.testing.assert_allclose(expected["genres"], means, rtol=1e-6)

    ours = merlin_layer(small.schema, dim=4, seed=1)
    ours(inputs)
    for weight in ours.weights:
        weight.assign(tables[weight.name])
    padded = inputs | {"genres": inputs["genres"].to_tensor()}
    for layer in (ours, theirs):
        for batch in (inputs, padded):
            result = layer(batch)
            assert result.keys() == expected.keys()
            for name, vectors in result.items():
                np.testing.assert_allclose(vectors, expected[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "model, optimizer",
    [("dlrm", "adagrad"), ("dcn", "rowwise_adagrad")],
)
def test_training_learns(small, model, optimizer):
    experiment = Experiment(small, model, optimizer, batch_size=64, epochs=4, patience=None)
    run = fit(experiment, "merlin", 0, create(experiment, "merlin", 0))
    assert len(run.loss) == len(run.valid_auc) == 4
    assert run.loss[-1] < run.loss[0]
    assert run.test_auc > 0.5
    assert run.samples_per_second > 0


def test_early_stopping_returns_to_the_best_epoch(small):
    # Batches this small overfit after a few epochs.
    experiment = Experiment(small, "dcn", "adam", batch_size=16, epochs=12, patience=2)
    run = fit(experiment, "merlin", 0, create(experiment, "merlin", 0))
    best = int(np.argmax(run.valid_auc))
    assert len(run.valid_auc) == best + 1 + 2 < 12
    again = roc_auc_score(small.likes("valid"), predict(run.model, small, "valid"))
    assert again == pytest.approx(run.valid_auc[best], abs=1e-3)  # Keras's metric approximates


@pytest.mark.parametrize("model", movielens.MODELS)
def test_equal_starts_stay_together(small, model):
    experiment = Experiment(small, model, "sgd", batch_size=64, epochs=2, patience=None)
    runs = movielens.train_both(experiment, seeds=[3], paired=True)
    assert [(run.embeddings, run.seed) for run in runs] == [("keras", 3), ("merlin", 3)]
    np.testing.assert_allclose(runs[0].loss, runs[1].loss, rtol=1e-4)
    assert movielens.check_pairs(runs) == []


def test_copied_weights_predict_the_same(small):
    experiment = Experiment(small)
    theirs, ours = create(experiment, "keras", 0), create(experiment, "merlin", 1)
    copy_weights(theirs, ours)
    inputs, _ = first_batch(small)
    np.testing.assert_allclose(ours(inputs), theirs(inputs), rtol=1e-5)


def test_a_model_is_saved_loaded_and_served(parts, small, tmp_path):
    experiment = Experiment(small, "dcn", epochs=1)
    trained = create(experiment, "merlin", 0)
    fit(experiment, "merlin", 0, trained)
    checkpoint = tmp_path / "checkpoint"
    assert movielens.check_saving(trained, small, parts["test"], tmp_path, checkpoint) == []
    assert {"user", "item"} <= set(me.checkpoint.Checkpoint(checkpoint).tables)


def test_another_workflow_beside_the_model_is_refused(parts, small, tmp_path):
    model = create(Experiment(small), "merlin", 0)
    other = prepare(parts | {"train": parts["train"].head(3000)}, tmp_path)
    with pytest.raises(ValueError, match=r"isn't the one(?s:.*)column 'user': vocabulary was"):
        me.data.check_fingerprint(model, nvt.Workflow.load(str(other.workflow)))


def test_pairs_that_part_ways_are_a_fault():
    def run(test_auc):
        return movielens.Run("merlin", 4, None, test_auc, 1.0, [], [])

    assert movielens.check_pairs([run(0.78), run(0.7811)]) == []
    assert movielens.check_pairs([run(0.78), run(0.7825)]) == [
        "Seed 4: the test AUCs of equal starts differ by 0.0025, 0.002 or more."
    ]


def test_the_program_ends_with_1_when_the_quality_is_missed(ratings, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(data, "load", lambda cache: ratings.head(2000))
    monkeypatch.setattr(movielens, "check_saving", lambda *_: [])
    code = movielens.main(["--seeds", "0", "--epochs", "1", "--output", str(tmp_path)])
    printed = capsys.readouterr().out
    assert code == 1
    assert "is below 0.78" in printed
    picture = Path(tmp_path) / "dlrm-adam-random.png"
    assert tf.io.decode_png(picture.read_bytes()).shape[2] in (3, 4)


def test_paired_means_sgd(capsys):
    assert movielens.arguments(["--paired"]).optimizer == "sgd"
    with pytest.raises(SystemExit):
        movielens.arguments(["--paired", "--optimizer", "adam"])
    assert "--paired compares with sgd" in capsys.readouterr().err
