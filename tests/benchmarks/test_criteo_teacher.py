"""The planted teacher: its probabilities, its calibration, the AUC that it sets as the limit."""

import dataclasses

import numpy as np
import pyarrow.parquet as pq
import pytest
from criteo_data import (
    CATEGORICAL,
    NUMERIC,
    Parameters,
    auc,
    cardinalities,
    expected_auc,
    generate,
    log_loss,
)
from criteo_data.rows import Rows
from criteo_data.teacher import hash64
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.metrics import roc_auc_score

PARAMETERS = Parameters(
    1_000,
    30_000,
    cardinalities=cardinalities(0.001),
    hotness=tuple(3 if column == 2 else 1 for column in range(26)),
    rows_per_file=1 << 14,
    rows_per_group=1 << 14,
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("teacher"), PARAMETERS)


def features(table):
    """(numbers, ids) of the teacher from a table of Arrow's."""
    numbers = np.stack([table[name].to_numpy() for name in NUMERIC])
    ids = []
    for name in CATEGORICAL:
        column = table[name].combine_chunks()
        if hasattr(column, "offsets"):
            ids.append((column.values.to_numpy(), column.offsets.to_numpy()))
        else:
            ids.append((column.to_numpy(), None))
    return numbers, ids


def test_auc_agrees_with_scikit_learn():
    random = np.random.default_rng(0)
    for scores in (random.random(500), random.integers(0, 5, 500), np.zeros(500)):
        labels = random.integers(0, 2, 500)
        assert auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert auc([1, 0], [0.9, 0.1]) == 1.0 and auc([[1], [0]], [[0.1], [0.9]]) == 0.0
    p = random.random(300)
    labels = random.integers(0, 2, 300)
    assert log_loss(labels, p) == pytest.approx(sklearn_log_loss(labels, p))
    with pytest.raises(ValueError, match="got 3 clicks of 3 rows"):
        auc([1, 1, 1], [0, 1, 2])


def test_the_expected_auc_is_the_mean_over_labels():
    random = np.random.default_rng(1)
    p = random.random(200) ** 2
    drawn = [roc_auc_score(random.random(200) < p, p) for _ in range(400)]
    assert expected_auc(p) == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / 20)
    # Two rows: the pair is ranked rightly in p(1 - q) of p(1 - q) + q(1 - p) cases, and a row
    # is no better than itself.
    p, q = 0.8, 0.3
    right, own = p * (1 - q), (p * (1 - p) + q * (1 - q)) / 2
    assert expected_auc([q, p]) == pytest.approx((right + own) / ((p + q) * (2 - p - q)))


def test_the_best_auc_is_that_of_the_true_probabilities(dataset):
    table = pq.read_table(dataset.test)
    probabilities = Rows(PARAMETERS).teacher.probability(*features(table))
    labels = table["label"].to_numpy()
    assert dataset.best_auc == pytest.approx(roc_auc_score(labels, probabilities), abs=1e-12)
    assert dataset.best_log_loss == pytest.approx(sklearn_log_loss(labels, probabilities))
    # Labels were drawn with these probabilities: the AUC is what they promise, up to chance
    # (the standard error of an AUC of .81 over 30,000 rows is about .003), and calibrated.
    assert abs(dataset.best_auc - expected_auc(probabilities)) < 0.01
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1.0)):
        inside = (low <= probabilities) & (probabilities < high)
        assert abs(labels[inside].mean() - probabilities[inside].mean()) < 0.025
    # No other ranking does better: not that of one part of the truth.
    parts = Rows(PARAMETERS).teacher.parts(*features(table))
    assert all(roc_auc_score(labels, part) < dataset.best_auc - 0.03 for part in parts)


def test_signal_rate_and_shares_are_what_was_asked(dataset):
    table = pq.read_table(dataset.test)
    teacher = Rows(PARAMETERS).teacher
    logits = teacher.logit(*features(table))
    assert np.std(logits) == pytest.approx(PARAMETERS.signal, rel=0.05)
    assert (1 / (1 + np.exp(-logits))).mean() == pytest.approx(0.256, abs=0.01)
    assert dataset.record["test"]["click_rate"] == pytest.approx(0.256, abs=0.01)
    scaled = teacher.parts(*features(table)) * np.array(teacher.record()["scales"])[:, None]
    np.testing.assert_allclose(
        scaled.var(axis=1) / PARAMETERS.signal**2, PARAMETERS.shares, atol=0.03
    )
    assert dataset.record["teacher"] == teacher.record()


def test_more_signal_means_a_better_best_auc():
    aucs = []
    for signal in (0.0, 0.5, 1.5, 4.0):
        block = Rows(dataclasses.replace(PARAMETERS, signal=signal)).block(0, 0, 20_000)
        aucs.append(auc(block.labels, block.probabilities) if signal else 0.5)
        if not signal:
            np.testing.assert_allclose(block.probabilities, 0.256)
    assert aucs == sorted(aucs) and aucs[-1] > 0.93


def murmur(number: int) -> int:
    """MurmurHash3's fmix64 with Python's integers."""
    most = (1 << 64) - 1
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        number = ((number ^ (number >> 33)) * factor) & most
    return number ^ (number >> 33)


def test_the_hash_is_murmurs():
    ids = np.array([0, 1, 12_345, (1 << 40) + 7])
    assert hash64(ids, 99).tolist() == [murmur(int(i) + 99) for i in ids]


def test_a_row_by_hand(dataset):
    """The three parts of single rows, written out from the definition without numpy."""
    teacher = Rows(PARAMETERS).teacher
    numbers, ids = features(pq.read_table(dataset.test))
    parts = teacher.parts(numbers, ids)

    def bag(column, row):
        values, splits = ids[column]
        bag = values[row : row + 1] if splits is None else values[splits[row] : splits[row + 1]]
        lanes = []
        for i in bag:
            bits = murmur(int(i) + teacher._salts[column])
            signed = [(bits >> (16 * k)) & 0xFFFF for k in range(4)]
            lanes.append([(s - 65536 if s >= 32768 else s) / 32768 * 3**0.5 for s in signed])
        return [sum(lane) / len(lanes) for lane in zip(*lanes, strict=True)]

    for row in (0, 1, 29_999):
        vectors = [bag(column, row) for column in range(26)]
        a, b = teacher._linear, teacher._square
        by_number = sum(a[i] * z + b[i] * z * z for i, z in enumerate(numbers[:, row]))
        by_id = sum(vector[0] for vector in vectors)
        by_pair = sum(
            sum(x * y for x, y in zip(vectors[c][1:], vectors[c + 13][1:], strict=True))
            for c in range(13)
        )
        np.testing.assert_allclose(parts[:, row], [by_number, by_id, by_pair], rtol=1e-4, atol=1e-4)


def test_constant_columns_are_harmless():
    rows = Rows(dataclasses.replace(PARAMETERS, cardinalities=(1,) * 26, nulls=0.0))
    block = rows.block(0, 0, 5_000)
    assert np.isfinite(block.probabilities).all()
    assert block.labels.mean() == pytest.approx(0.256, abs=0.02)
