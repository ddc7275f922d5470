"""The benchmark of id maps: its streams, its figures, and one small run."""

import json

import ids as benchmark
import numpy as np
import pytest
from ids_cases import BATCH, Case, first, scattered, stream


def test_ids_are_scattered_one_for_one():
    ids = scattered(np.arange(200_000))
    assert len(np.unique(ids)) == 200_000
    assert ids.min() < -(2**62) and ids.max() > 2**62


@pytest.mark.parametrize("full, distinct", [("50%", 500), ("95%", 950), ("overfull", 10_000)])
def test_a_stream_has_as_many_ids_as_it_says(full, distinct):
    case = Case(1000, full, "uniform")
    ids = stream(case, 4)
    assert ids.shape == (4, 1, BATCH, 1) and case.universe == distinct
    assert len(np.unique(ids)) == distinct
    there = first(case)
    assert len(there) == len(np.unique(there)) == min(distinct, 1000)
    assert np.isin(there, ids).all()


def test_zipf_streams_follow_their_law():
    ids = stream(Case(1000, "95%", "zipf"), 8)
    counts = np.sort(np.unique(ids, return_counts=True)[1])[::-1]
    expected = np.arange(1, 951) ** -1.05
    np.testing.assert_allclose(counts[:5] / ids.size, expected[:5] / expected.sum(), rtol=0.03)
    most, often = scattered(np.array([0]))[0], counts[0]
    assert (ids == most).sum() == often


def test_percentiles_and_ratios():
    results = benchmark.compared(
        {
            benchmark.FIRST: benchmark.percentiles([0.001] * 99 + [0.003]),
            benchmark.CONTROL: benchmark.percentiles([0.001] * 100),
            "other": benchmark.percentiles([0.01, 0.03]),
        }
    )
    ours = results[benchmark.FIRST]
    assert ours["p50_ms"] == pytest.approx(1) and ours["slowest_ms"] == pytest.approx(3)
    assert ours["ids_per_second"] == pytest.approx(BATCH / 0.00102)
    assert results["other"]["ratio"] == pytest.approx(0.02 / 0.00102)
    assert ours["p99_of_control"] == pytest.approx(np.percentile([1] * 99 + [3], 99))


def test_a_small_run(tmp_path, capsys, monkeypatch, workers_here):
    monkeypatch.setattr(benchmark, "Worker", workers_here)
    path = tmp_path / "ids.json"
    args = ["--capacities", "0.002", "--full", "overfull", "--laws", "zipf,uniform"]
    args += ["--peers", "never", "ours, modulo", "MCH, LFU", "--json", str(path)]
    args += ["--seconds", "0.05", "--rounds", "2"]
    fills = []
    monkeypatch.setattr(benchmark, "first", lambda case: fills.append(case.label) or first(case))
    code = benchmark.main([*args, "--torch-python", str(tmp_path / "none")])
    assert code == 0 and fills == ["0.002M rows, overfull, zipf"]  # and no more for uniform ids
    [case, uniform] = json.loads(path.read_text())["cases"]
    assert uniform["law"] == "uniform" and set(uniform["results"]) == {"train", "find"}
    assert set(case["results"]["train"]) == {benchmark.CONTROL, "ours, modulo"}
    assert set(case["results"]["find"]) == {"ours, modulo"}
    assert case["results"]["train"][benchmark.CONTROL]["p99_of_control"] == 1
    filled = case["filled"][benchmark.CONTROL]
    assert filled["used"] >= 1800 and filled["bytes"] / filled["rows"] <= 20
    assert set(case["failed"]) == {"torchrec MCH, LFU"}  # there is no torch here
    printed = capsys.readouterr().out
    assert "0.002M rows, overfull, zipf: find" in printed and "no environment with torch" in printed


def test_a_run_ends_when_its_time_is_up(tmp_path, capsys, workers_here, monkeypatch):
    monkeypatch.setattr(benchmark, "Worker", workers_here)
    path = tmp_path / "ids.json"
    args = ["--capacities", "0.002", "--minutes", "-1", "--peers", "ours, modulo"]
    assert benchmark.main([*args, "--json", str(path)]) == 0
    assert "skipped 0.002M rows, overfull, zipf: the time is up" in capsys.readouterr().out
    assert not path.exists()


def test_each_map_gives_an_id_one_row_of_its_own(monkeypatch):
    """Of the TensorFlow maps, whose rows are to be told apart; ours have tests of their own."""
    from adapters import ids_tensorflow as adapters

    # TensorFlow may have started its threads in a test before.
    monkeypatch.setattr(adapters.runtime, "configure", lambda threads: None)
    ids = scattered(np.arange(64))
    batch = ids[np.random.default_rng(0).integers(0, 64, (1, 1, 256, 1))]
    names = ("DenseHashTable", "MutableHashTable", "StaticVocabularyTable", "IntegerLookup")
    for name in names:
        adapter = getattr(adapters, name)(1)
        adapter.build(1, 64, 0)
        adapter.fill(ids)
        for group in ("train", "find") if hasattr(adapter, "taken") else ("find",):
            [step] = adapter.steps(group, batch).values()
            rows = np.asarray(step(0))
            pairs = {*zip(batch.ravel().tolist(), rows.tolist(), strict=True)}
            assert len(pairs) == len({row for _, row in pairs}) == len(np.unique(batch)), name


def test_unknown_cases_are_refused(capsys):
    with pytest.raises(SystemExit):
        benchmark.arguments(["--full", "half"])
    assert "--full is of 50%, 95%, overfull" in capsys.readouterr().err
