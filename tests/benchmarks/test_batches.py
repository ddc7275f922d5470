"""The benchmark of batches: every way gives all rows, and the table says so."""

import json
import sys

import batches as benchmark


def test_every_way_is_measured(tmp_path, monkeypatch, capsys):
    arguments = ["--rows", "3000", "--batch-size", "512", "--seconds", "0.001"]
    arguments += ["--json", str(tmp_path / "figures.json")]
    monkeypatch.setattr(sys, "argv", ["batches.py", *arguments])
    seen = []

    def measure(ways, seconds):
        seen.extend(sum(way()) for way in ways.values())
        return real(ways, seconds)

    real = benchmark.measure
    monkeypatch.setattr(benchmark, "measure", measure)
    benchmark.main()
    assert seen == [3000] * len(benchmark.WAYS)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures["ways"]) == list(benchmark.WAYS)
    assert all(way["rows_per_second"] > 0 and way["epochs"] for way in figures["ways"].values())
    assert "ours, shuffled" in capsys.readouterr().out
