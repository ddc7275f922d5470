"""Streams, ids by frequency, scores before learning, the gap; and a small run."""

import dataclasses
import json

import movielens_data
import numpy as np
import pandas as pd
import pytest
import streaming_data
import streaming_ids
import streaming_maps
from streaming_data import Stream, counts_in, counts_so_far, scattered
from streaming_maps import CUSTOM, FULL, MODULO, ORACLE, TASKS, Contender
from streaming_models import Days, dcn, train_epochs, train_once
from streaming_report import Outcome, Run, chosen, gap_closed, losses, picture, smoothed
from tensorflow import keras

import merlin_embeddings as me


def small_stream(days=3, day=64, ids=40, seed=0):
    """Labels that the id decides: even ids of `user` are liked."""
    random = np.random.default_rng(seed)
    user = random.zipf(1.4, days * day).clip(max=ids)
    return Stream(
        "small",
        {"user": scattered(user), "place": random.integers(0, 3, days * day)},
        {"place": 3},
        random.standard_normal((days * day, 2)).astype(np.float32),
        (user % 2 == 0).astype(np.float32),
        day * np.arange(days + 1),
    )


def test_by_frequency_numbers_ids_from_the_most_frequent_on():
    stream = small_stream()
    ranked = stream.by_frequency()
    assert ranked.vocabulary == {"place": 3, "user": stream.distinct("user")}
    pairs = {*zip(stream.ids["user"].tolist(), ranked.ids["user"].tolist(), strict=True)}
    assert len(pairs) == stream.distinct("user")
    counts = np.bincount(ranked.ids["user"])
    assert (np.diff(counts) <= 0).all() and counts.sum() == len(stream)
    np.testing.assert_array_equal(ranked.ids["place"], stream.ids["place"])


def test_first_days():
    stream = small_stream()
    two = stream.first(2)
    assert len(two) == 128 and two.days.tolist() == [0, 64, 128]
    np.testing.assert_array_equal(two.inputs()["numbers"], stream.numbers[:128])


def test_click_logs_drift(monkeypatch):
    few = dataclasses.replace(
        streaming_data.CRITEO, cardinalities=(600,) * 13 + (5,) * 13, train_rows=4 * 2048
    )
    monkeypatch.setattr(streaming_data, "CRITEO", few)
    monkeypatch.setattr(streaming_data, "DAY", 2048)
    monkeypatch.setattr(streaming_data, "DAYS", 4)
    stream = streaming_data.click_logs()
    assert len(stream) == 4 * 2048 and len(stream.open_columns) == 13
    assert stream.vocabulary["C14"] == 8 and abs(stream.ids["C1"]).min() > 2**32
    tops = []
    for first in (0, 3 * 2048):
        ids, counts = np.unique(stream.ids["C1"][first : first + 2048], return_counts=True)
        tops.append(set(ids[np.argsort(-counts)[:60]].tolist()))
    assert 10 < len(tops[0] & tops[1]) < 55  # some of the hot ids have changed


def test_movielens_by_time_has_whole_days(monkeypatch):
    ratings = pd.DataFrame(
        {
            "user": [1, 2, 1, 3],
            "item": [5, 5, 6, 7],
            "timestamp": [86_400 * 2 + 5, 10, 86_399, 86_400 * 2],
            "like": np.float32([1, 0, 1, 0]),
        }
    )
    monkeypatch.setattr(movielens_data, "load", lambda cache: ratings)
    stream = streaming_data.movielens(None)
    assert stream.days.tolist() == [0, 2, 4]
    assert stream.labels.tolist() == [0, 1, 0, 1]
    assert stream.ids["user"].tolist() == scattered(np.array([2, 1, 3, 1])).tolist()


def test_scores_are_what_the_model_said_before_it_learned():
    stream = small_stream()
    model = dcn(stream, {"user": me.ids.Modulo(50)}, dim=4)
    first = np.asarray(model(stream.inputs(slice(0, 32))))[:, 0]
    scores = train_once(model, stream, batch=32)
    assert scores.shape == (192,)
    np.testing.assert_allclose(scores[:32], first, rtol=1e-5)
    again = np.asarray(model(stream.inputs(slice(32, 64))))[:, 0]
    assert np.abs(scores[32:64] - again).max() > 1e-3  # it has learned since


def test_days_begin_before_their_first_batch():
    stream, seen = dataclasses.replace(small_stream(), days=np.array([0, 10, 20, 192])), []
    watch = Days(stream, 16, lambda day: seen.append((day, at)))
    for at in range(12):
        watch.on_train_batch_begin(at)
    assert seen == [(0, 0), (1, 1), (2, 2)]


def test_epochs_test_at_the_best_in_validation(monkeypatch):
    stream = small_stream(day=256)
    monkeypatch.setattr(keras.Model, "predict", lambda self, x, *_, **__: x["user"][:, None] * 1.0)
    model = dcn(stream, {"user": me.ids.Modulo(50)}, dim=4)
    reached = train_epochs(model, stream, 64, 2)
    assert reached.by_epoch == [reached.valid] * 2
    labels, ids = stream.labels[512:], stream.ids["user"][512:].astype(float)
    pairs = [(a, b) for a in ids[labels > 0] for b in ids[labels == 0]]
    assert reached.test == pytest.approx(np.mean([(a > b) + (a == b) / 2 for a, b in pairs]))


def test_the_gap():
    assert gap_closed(0.74, 0.7, 0.75) == pytest.approx(0.8)
    assert gap_closed(0.7, 0.7, 0.75) == 0


def test_counts():
    ids = np.array([5, 7, 5, -2, 5, 7])
    assert counts_so_far(ids).tolist() == [1, 1, 2, 1, 3, 2]
    assert counts_in(ids, np.array([7, 7, -2, 9])).tolist() == [0, 2, 0, 1, 0, 2]
    stream = small_stream()
    scored = stream.with_counts(of_first_day=True)
    assert scored.inputs(slice(0, 4))["user_score"].tolist() == [
        (stream.ids["user"][:64] == id).sum() for id in stream.ids["user"][:4]
    ]
    assert len(scored.first(1).scores["user"]) == 64


def test_smoothing_leaves_days_without_auc_out():
    days = [0.5] * 30
    days[10] = np.nan
    np.testing.assert_allclose(smoothed(days), 0.5)
    assert smoothed([0.1, 0.2]).tolist() == [0.1, 0.2]


def outcome(name, *aucs, valid=None, days=(0.5, 0.6)):
    return Outcome(name, [Run(auc, valid, list(days), 16, 100, None, 1.0) for auc in aucs])


def test_what_is_chosen_and_what_is_lost(tmp_path):
    """The best policy in validation, which is not the best in the test; baselines are no choice."""
    outcomes = [
        outcome(FULL, 0.9, valid=0.9),
        outcome(MODULO, 0.69, 0.71, valid=0.7, days=(0.5, np.nan, 0.6)),
        outcome(ORACLE, 0.8, valid=0.8, days=(0.5,)),
        outcome("a", 0.74, 0.76, valid=0.72),
        outcome("b", 0.6, valid=0.71),
    ]
    assert list(chosen(outcomes)) == [
        "Best in validation: a; in the test it closes 50% of the gap."
    ]
    assert list(losses(outcomes)) == ["Worse than modulo: b (-0.1000)."]
    assert list(chosen([outcome("a", 0.7)])) == [] == list(losses([outcome(MODULO, 0.7)]))
    assert outcomes[3].spread == pytest.approx(0.01)
    assert outcomes[1].record()["runs"][0]["days"] == [0.5, None, 0.6]
    mixed = Outcome("", [outcome("", 0.5, days=(0.5,)).runs[0], outcome("", 0.5).runs[0]])
    assert mixed.days.tolist() == [0.5, 0.6]
    picture({"one": outcomes, "two": outcomes}, tmp_path / "p.svg")
    drawn = (tmp_path / "p.svg").read_text()
    for text in ("one", "two", "epoch", "a", "b", FULL, ORACLE):
        assert f"<!-- {text} -->" in drawn


def test_maps_have_the_rows_that_they_were_given():
    for rows in (17, 94, 160, 168, 420):
        for name, spec in streaming_maps.policies(10).items():
            made = spec(rows)
            given = streaming_maps.managed(rows).rows
            assert spec(given).rows_of(None) == given, (name, rows)
            assert rows <= made.rows_of(None) <= rows + 16


def test_each_map_is_among_the_contenders():
    stream = small_stream()
    found = streaming_maps.contenders(TASKS["clicks"], stream)
    assert list(found) == [FULL, MODULO, ORACLE, *streaming_maps.policies(1)]
    assert {name for name, one in found.items() if one.thinks_in_epochs} == {
        "epoch LRU",
        "epoch LFU",
    }
    assert [name for name, one in found.items() if one.stream.scores] == [CUSTOM]
    few = streaming_maps.contenders(TASKS["clicks"], stream, ["TTL"])
    assert list(few) == [FULL, MODULO, ORACLE, "TTL, 1 day"]


def test_day_aucs_weigh_days_and_leave_the_first_out():
    stream = dataclasses.replace(
        small_stream(days=6, day=2), labels=np.float32([1, 0] * 5 + [1, 1])
    )
    scores = np.array([0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1, 0])
    mean, days = streaming_ids.day_aucs(stream, scores)
    assert days[:5] == [0, 1, 0, 1, 1] and np.isnan(days[5])
    assert mean == pytest.approx(3 / 4)


def test_a_small_run_prints_and_draws(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(streaming_ids, "stream_of", lambda name, options: small_stream(day=256))
    args = ["--quick", "--maps", "LRU, admitted", "--only", "movielens-random"]
    code = streaming_ids.main([*args, "--output", str(tmp_path)])
    assert code == 0
    printed = capsys.readouterr().out
    for name in (*streaming_maps.BASELINES, "LRU, admitted by 2%", "Best in validation: LRU"):
        assert name in printed
    assert (tmp_path / "streaming-ids.svg").stat().st_size > 1000
    [outcomes] = json.loads((tmp_path / "streaming-ids.json").read_text()).values()
    assert [one["map"] for one in outcomes] == [*streaming_maps.BASELINES, "LRU, admitted by 2%"]


@pytest.mark.parametrize("name", ["epoch LRU", "dynamic, LFU", CUSTOM])
def test_maps_train(name):
    stream = small_stream()
    if name == CUSTOM:
        stream = stream.with_counts(of_first_day=False)
    contender = Contender(stream, {"user": streaming_maps.policies(2)[name](20)})
    task = dataclasses.replace(TASKS["clicks"], batch=64)
    run = streaming_ids.run(task, contender, ["user"], 0, 1)
    assert 0 < run.auc <= 1 and run.rows <= 33 and run.known > 0
