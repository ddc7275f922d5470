"""The Criteo benchmark's arithmetic, and one small run of the whole. Nothing asserts a time."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import criteo_report
import pytest
from criteo_data.parameters import CARDINALITIES

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "criteo_like.py"


@pytest.fixture(scope="module")
def criteo_like():
    """By its path: an example has the same name."""
    spec = importlib.util.spec_from_file_location("benchmark_criteo_like", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_case_says_its_tables(criteo_like):
    fixed, scaled = (criteo_like.Case(tables, 8, 4) for tables in ("26 x 1000", "Criteo x 1"))
    assert fixed.cardinalities() == (997,) * 26  # with the ids 0, 1 and 2: 1000 rows
    assert scaled.cardinalities() == CARDINALITIES
    target = criteo_like.CASES["100k-4k"]
    assert (target.tables, target.dim) == ("26 x 100000", 64)


def test_ratios_and_shares_follow_from_rates():
    rates = {"ours": 300.0, "keras": 100.0, "none": 400.0}
    results = criteo_report.compared(
        {name: {"samples_per_second": rate} for name, rate in rates.items()}, batch=60
    )
    assert results["keras"]["ratio"] == 3 and results["ours"]["ratio"] == 1
    assert results["keras"]["step_ms"] == pytest.approx(600)
    # 0.15 s of a step without tables, 0.2 s with ours, 0.6 s with Keras's.
    assert results["ours"]["embeddings_share"] == pytest.approx(0.05 / 0.2)
    assert results["keras"]["embeddings_share"] == pytest.approx(0.45 / 0.6)
    assert results["none"]["embeddings_share"] is None
    alone = criteo_report.compared({"keras": {"samples_per_second": 5.0}}, 10)
    assert alone["keras"]["ratio"] is None and alone["keras"]["embeddings_share"] is None


def test_a_competitor_that_fails_is_named_and_the_others_go_on(criteo_like, monkeypatch, tmp_path):
    class Fake:
        def __init__(self, name, *_):
            self.name, self.closed = name, False
            made[name] = self

        def ready(self):
            pass

        def steps(self, count):
            if self.name == "keras" and count > 1:
                raise criteo_like.CompetitorError("out of memory")
            return [0.5] * count

        def ask(self, do, **_):
            return {"do": do}

        def close(self):
            self.closed = True

    made = {}
    monkeypatch.setattr(criteo_like, "Competitor", Fake)
    options = criteo_like.arguments(["--rounds", "2", "--warm-up", "1", "--profile", "0"])
    results, failed = criteo_like.measure(criteo_like.Case("26 x 9", 4, 10), tmp_path, options)
    assert failed == {"keras": "out of memory"}
    assert set(results) == {"ours", "tensorflow", "none"}
    assert results["ours"]["samples_per_second"] == 20  # 10 rows in half a second
    assert results["ours"]["turns"] == [20, 20]
    assert all(fake.closed for fake in made.values())


def test_an_unknown_case_is_refused(criteo_like, capsys):
    with pytest.raises(SystemExit):
        criteo_like.arguments(["--cases", "100k-4k,huge"])
    assert "huge: not of 100k-4k, 100k-16k, criteo-8k, quick" in capsys.readouterr().err


def test_a_small_run_gives_a_whole_document(tmp_path):
    path = tmp_path / "new" / "result.json"
    command = [
        *(sys.executable, str(SCRIPT), "--json", str(path), "--data", str(tmp_path)),
        *("--tables", "26 x 200", "--dim", "4", "--batch", "128", "--test-rows", "1000"),
        *("--rounds", "2", "--steps", "2", "--lead", "1", "--warm-up", "2", "--profile", "1"),
        *("--drift", "1", "--only", "ours,keras"),  # two: each traces a model of 26 columns
    ]
    done = subprocess.run(
        command, env={**os.environ, "QUICK": "1"}, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(path.read_text())
    assert document["quick"] is True and document["steps"] == 2 + 2 * 3
    assert {"tensorflow-cpu", "keras"} <= set(document["versions"])
    assert document["machine"]["cores"] == os.cpu_count()
    (case,) = document["cases"]
    assert case["table_rows"] == 26 * 200 and case["table_bytes"] == 26 * 200 * 4 * 4
    assert case["data"]["parameters"]["drift"] == 1
    assert case["data"]["parameters"]["train_rows"] == 9 * 128
    assert case["failed"] == {} and list(case["results"]) == ["ours", "keras"]
    for result in case["results"].values():
        assert len(result["turns"]) == 2
        assert result["quality"]["steps"] == 8
        assert 0 < result["memory"]["resident_bytes"] <= result["memory"]["peak_bytes"]
        assert 0 <= result["profile"]["embeddings_share_of_ops"] < 1
        assert result["profile"]["longest"][0]["percent"] > 0
    # The same steps from the same weights on the same rows: the same model.
    ours, keras = case["results"].values()
    assert keras["quality"]["auc"] == pytest.approx(ours["quality"]["auc"], abs=1e-3)
    assert ours["profile"]["embeddings_share_of_ops"] > 0
    assert "merlin_embeddings" in done.stdout and "keras.layers.Embedding" in done.stdout
