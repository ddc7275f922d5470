"""The lookup benchmark's arithmetic, and one small run of the whole. Nothing asserts a time."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import measure
import numpy as np
import pytest
import report
import semantics
import workers
from cases import Batch, TableSet, batch_count, zipf_ids

LOOKUP = Path(__file__).resolve().parents[2] / "benchmarks" / "lookup.py"
TABLES = TableSet(2, 1000, 16)


def result(peer, group, batch, median, ours):
    found = measure.Result(peer, group, TABLES, batch, "way", 3, median, median, (median, median))
    found.ours_ms = ours
    return found


def test_ids_follow_zipf_and_are_scattered():
    rows, batch = 1000, Batch(5000, 4)
    ids = zipf_ids(2, rows, batch, 3)
    assert ids.shape == (3, 2, 5000, 4) and ids.dtype == np.int64
    assert ids.min() >= 0 and ids.max() < rows
    np.testing.assert_array_equal(ids, zipf_ids(2, rows, batch, 3))
    weights = 1 / np.arange(1, rows + 1) ** 1.05
    for table in range(2):
        counts = np.bincount(ids[:, table].ravel(), minlength=rows)
        by_rank = np.sort(counts)[::-1] / counts.sum()
        np.testing.assert_allclose(by_rank[:5], (weights / weights.sum())[:5], rtol=0.1)
        assert np.argmax(counts) != 0
    hottest = [np.bincount(ids[:, table].ravel()).argmax() for table in range(2)]
    assert hottest[0] != hottest[1]


@pytest.mark.parametrize(
    ("tables", "batch", "expected"),
    [(1, Batch(4096, 1), 64), (26, Batch(4096, 1), 18), (26, Batch(16384, 10), 4)],
)
def test_small_batches_are_many(tables, batch, expected):
    assert batch_count(tables, batch) == expected


def test_waves_put_ours_beside_every_peer_that_fits(tmp_path):
    batch = Batch(8, 1)
    ids = tmp_path / "ids.npy"
    ids.write_bytes(b"")
    gib = 2**30
    tables = TableSet(1, gib // 64, 16)  # 1 GiB
    peers = [
        workers.Peer(workers.OURS, "merlin", {"sgd": 1}, 0),
        workers.Peer("a", "a", {"sgd": 1}, 0),
        workers.Peer("b", "b", {"sgd": 1}, 0),
        workers.Peer("c", "c", {"sgd": 9}, 0),
    ]
    one = 1 + workers.PROCESS_BYTES / gib
    plan, skipped = measure.waves(peers, "sgd", tables, [batch], {batch: ids}, int(2.5 * one * gib))
    assert [[peer.name for peer, _ in wave.peers] for wave in plan] == [
        [workers.OURS, "a"],
        [workers.OURS, "b"],
    ]
    assert list(skipped) == ["c"] and "11.2 GiB" in skipped["c"]


def test_summary_takes_the_best_peer_of_each_case():
    small, large = Batch(4, 1), Batch(8, 1)
    results = [
        result(workers.OURS, "forward", small, 1.0, 1.0),
        result("a", "forward", small, 4.0, 1.0),
        result("b", "forward", small, 2.0, 1.0),
        result(workers.LIMIT, "forward", small, 0.5, 1.0),
        result(workers.OURS, "forward", large, 10.0, 10.0),
        result("a", "forward", large, 9.0, 10.0),
        measure.Result("b", "forward", TABLES, large, skipped="no memory"),
    ]
    entry = report.summary(results)["forward"]
    assert entry["cases"] == entry["compared"] == 2
    assert entry["geometric_mean"] == pytest.approx(math.sqrt(2.0 * 0.9))
    assert entry["worst"] == pytest.approx(0.9)
    assert entry["worst_case"] == "2 x 1k x 16, 8 x 1, against a"
    assert entry["gather_limit_percent"]["worst"] == pytest.approx(50.0)


def test_a_peer_that_computes_something_else_is_found():
    values = np.arange(24, dtype=np.float32).reshape(1, 6, 4)
    ids = np.array([[[0, 1], [1, 1], [2, 0]]])
    sums = np.array([[[4, 6, 8, 10], [8, 10, 12, 14], [8, 10, 12, 14]]], np.float32)
    assert semantics.fault("forward", values, ids, sums) is None
    assert "sums" in semantics.fault("forward", values, ids, sums / 2)

    gradient = semantics.output_gradient(1, 3, 4)[0]
    step = values.copy()
    step[0, 0] -= 0.01 * (gradient[0] + gradient[2])
    step[0, 1] -= 0.01 * (gradient[0] + 2 * gradient[1])
    step[0, 2] -= 0.01 * gradient[2]
    assert semantics.fault("sgd", values, ids, step) is None
    assert semantics.fault("adam", values, ids, step) is None
    assert "SGD" in semantics.fault("sgd", values, ids, values)
    assert "against" in semantics.fault("adam", values, ids, values)
    step[0, 5] += 1
    assert "weren't looked up" in semantics.fault("adam", values, ids, step)


def test_a_small_run_gives_a_whole_document(tmp_path):
    path = tmp_path / "new" / "result.json"
    command = [
        *(sys.executable, str(LOOKUP), "--json", str(path), "--tables", "2x500", "--dims", "16"),
        *("--only", ",".join(report.GOALS)),
        *("--batches", "32", "--hotness", "3", "--seconds", "0.01"),
        *("--size-rows", "2000,1000", "--torch-python", str(tmp_path / "absent")),
    ]
    done = subprocess.run(
        command, env={**os.environ, "QUICK": "1"}, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(path.read_text())

    assert document["quick"] is True
    assert document["machine"]["cores"] == os.cpu_count()
    assert document["machine"]["cpu"] and document["machine"]["caches"]
    assert set(document["left_out"]) == {"fbgemm TBE", "torch EmbeddingBag", "torch Embedding"}
    assert all("environment" in reason for reason in document["left_out"].values())

    groups = {
        workers.OURS: {"forward", "sgd", "rowwise_adagrad", "adagrad", "adam"},
        "Keras": {"forward", "sgd", "adagrad", "adam"},
        "tf lookup": {"forward", "sgd", "adagrad"},
        workers.LIMIT: {"forward"},
    }
    references = {workers.CALL: {"forward"}}
    checks = document["checks"]
    assert checks == {
        peer: dict.fromkeys(sorted(named, key=list(report.GOALS).index), "ok")
        for peer, named in groups.items()
    }
    groups |= references
    assert set(document["versions"]) == set(groups)
    seen = {(r["peer"], r["group"]) for r in document["results"]}
    assert seen == {(peer, group) for peer, named in groups.items() for group in named}
    for record in document["results"]:
        assert record["skipped"] is None
        assert record["steps"] >= measure.MIN_STEPS_FAR_BEHIND
        assert 0 < record["best_ms"] <= record["median_ms"]
        assert record["ratio"] == pytest.approx(record["median_ms"] / record["ours_ms"])
        rate = 2 * 32 * 3 / record["median_ms"] / 1e3
        assert record["million_lookups_per_second"] == pytest.approx(rate)
    compared = {group: entry["compared"] for group, entry in document["summary"].items()}
    assert compared == {"forward": 1, "sgd": 1, "rowwise_adagrad": 0, "adagrad": 1, "adam": 1}
    sizes = [(step["peer"], step["rows"]) for step in document["adam_table_size"]["steps"]]
    assert set(sizes) == {(workers.OURS, 2000), (workers.OURS, 1000), ("Keras", 2000)}
    assert "% of limit" in done.stdout and "Adam and the table's size" in done.stdout
