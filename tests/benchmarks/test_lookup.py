"""The lookup benchmark's arithmetic, and one small run of the whole. Nothing asserts a time."""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lookup
import measure
import numpy as np
import pytest
import report
import semantics
import uniform
import workers
from cases import Batch, TableSet, batch_count, uniform_ids, zipf_ids

GROUPS = [group for group in report.GOALS if group != "sgd"]  # which is Adagrad without a slot
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


def test_uniform_ids_reach_every_row_alike():
    rows = 100
    ids = uniform_ids(2, rows, Batch(5000, 2), 2)
    assert ids.shape == (2, 2, 5000, 2) and ids.dtype == np.int64
    np.testing.assert_array_equal(ids, uniform_ids(2, rows, Batch(5000, 2), 2))
    for table in range(2):
        counts = np.bincount(ids[:, table].ravel(), minlength=rows)
        assert counts.size == rows
        np.testing.assert_allclose(counts, 200, atol=5 * math.sqrt(200))
    assert not np.array_equal(ids[:, 0], ids[:, 1])


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


def test_the_interval_of_a_median_holds_it_as_often_as_it_says():
    draw = np.random.default_rng(3)
    held = 0
    for _ in range(400):
        low, high = measure.median_interval(draw.exponential(size=30).tolist())
        held += low <= math.log(2) <= high
    assert held >= 0.93 * 400
    assert measure.median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_a_median_is_narrow_when_its_interval_is():
    assert not measure.is_narrow([])
    assert not measure.is_narrow([1.0, 2.0] * 10)
    assert measure.is_narrow([1.0, 1.01] * 10)


class Fake:
    """A worker whose steps take times that are given; and what it was asked."""

    def __init__(self, name, times):
        self.peer = workers.Peer(name, name, {"sgd": 1}, 0)
        self.times, self.asked = times, []

    def send(self, do, **arguments):
        assert do == "prepare"

    def receive(self):
        return None

    def ask(self, do, **arguments):
        if do == "warm":
            return {"way": "way", "seconds": self.times[0]}
        if do == "run":
            self.asked.append(arguments["steps"])
            return [self.times[i % len(self.times)] for i in range(arguments["steps"])]
        assert do == "release"
        return None


def test_a_peer_that_is_known_takes_no_more_turns_but_ours_does():
    steady, wild = Fake("steady", [0.001]), Fake("wild", [0.001, 0.003])
    ours = Fake(workers.OURS, [0.001])
    ids = dict.fromkeys((ours, steady, wild))
    taken, failed = measure.interleave(
        None, [ours, steady, wild], "sgd", ids, measure.Effort(0.08, 8)
    )
    assert failed == {}
    assert len(steady.asked) == measure.NARROW_ROUNDS
    assert len(wild.asked) == len(ours.asked) == 8
    assert [len(times) for _, times in taken.values()] == [80, 40, 80]

    all_steady = [Fake(workers.OURS, [0.001]), Fake("steady", [0.001])]
    measure.interleave(None, all_steady, "sgd", dict.fromkeys(all_steady), measure.Effort(0.08, 8))
    assert [len(fake.asked) for fake in all_steady] == [measure.NARROW_ROUNDS] * 2


def test_cases_that_are_left_when_the_time_is_up_say_so(tmp_path):
    batch = Batch(8, 1)
    ids = tmp_path / "ids.npy"
    ids.write_bytes(b"")
    peers = [workers.Peer(n, n, {"sgd": 1}, 0) for n in (workers.OURS, "a")]
    results = measure.measure_tables(
        None, peers, ["sgd"], TABLES, {batch: ids}, 2**40, measure.Effort(1),
        lambda group: None, time_up=lambda: True,
    )  # fmt: skip
    assert [(r.peer, r.skipped) for r in results] == [
        (workers.OURS, measure.TIME_UP),
        ("a", measure.TIME_UP),
    ]


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


def test_a_large_table_is_looked_up_in_bags_of_one_and_of_twenty():
    assert uniform.batches(1 << 17) == [Batch(1 << 17, 1), Batch(1 << 14, 20)]
    assert uniform.batches(1) == [Batch(1, 1), Batch(1, 20)]


def test_a_run_by_real_processes(tmp_path):
    path = tmp_path / "result.json"
    command = [
        *(sys.executable, str(LOOKUP), "--json", str(path), "--tables", "1x500", "--dims", "16"),
        *("--only", "forward", "--peers", f"{workers.OURS},{workers.LIMIT}", "--batches", "32"),
        *("--hotness", "3", "--seconds", "0.01", "--torch-python", str(tmp_path / "absent")),
    ]
    done = subprocess.run(
        command, env={**os.environ, "QUICK": "1"}, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(path.read_text())
    both = workers.OURS, workers.LIMIT
    assert document["checks"] == {name: {"forward": "ok"} for name in both}
    assert {(r["peer"], r["skipped"]) for r in document["results"]} == {(n, None) for n in both}
    assert "% of limit" in done.stdout


def test_a_small_run_gives_a_whole_document(tmp_path, monkeypatch, capsys, workers_here):
    path = tmp_path / "new" / "result.json"
    args = [
        *("--json", str(path), "--tables", "2x500", "--dims", "16"),
        *("--only", ",".join(GROUPS)),
        *("--batches", "32", "--hotness", "3", "--seconds", "0.01"),
        *("--size-rows", "2000,1000", "--torch-python", str(tmp_path / "absent")),
        *("--uniform-dims", "16", "--uniform-gib", "0.001", "--uniform-lookups", "64"),
        *("--html", str(tmp_path / "report.html")),
    ]
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest has its own
    assert lookup.main(args) == 0
    printed = capsys.readouterr().out
    document = json.loads(path.read_text())

    assert document["quick"] is True
    assert document["machine"]["cores"] == os.cpu_count()
    assert document["machine"]["cpu"] and document["machine"]["caches"]
    assert set(document["left_out"]) == {
        *("fbgemm TBE", "torch EmbeddingBag", "torch Embedding", "torchrec EBC")
    }
    assert all("environment" in reason for reason in document["left_out"].values())

    groups = {
        workers.OURS: {"forward", "rowwise_adagrad", "adagrad", "adam"},
        "Keras": {"forward", "adagrad", "adam"},
        "tf lookup": {"forward", "adagrad"},
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
        assert record["interval_ms"][0] <= record["median_ms"] <= record["interval_ms"][1]
        assert record["ratio"] == pytest.approx(record["median_ms"] / record["ours_ms"])
        rate = 2 * 32 * 3 / record["median_ms"] / 1e3
        assert record["million_lookups_per_second"] == pytest.approx(rate)
    compared = {group: entry["compared"] for group, entry in document["summary"].items()}
    assert compared == {"forward": 1, "rowwise_adagrad": 0, "adagrad": 1, "adam": 1}
    sizes = [(step["peer"], step["rows"]) for step in document["adam_table_size"]["steps"]]
    assert set(sizes) == {(workers.OURS, 2000), (workers.OURS, 1000), ("Keras", 2000)}
    large = {(r["peer"], r["tables"]["rows"] * r["tables"]["dim"], r["batch"]["hotness"])
             for r in document["uniform"]}  # fmt: skip
    expected = {workers.OURS, "tf lookup", workers.LIMIT}
    assert large == {(p, int(0.001 * 2**26) * 4, pool) for p in expected for pool in uniform.POOLS}
    assert all(r["million_lookups_per_second"] > 0 for r in document["uniform"])
    assert "% of limit" in printed and "Adam and the table's size" in printed
    assert "uniform ids" in printed
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>") and "uniform ids" in page


def _left(parent):
    """Processes of workers that have this parent, and its folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            status = (path.parent / "status").read_text()
            if f"PPid:\t{parent}\n" in status and b"worker.py" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    return found


def _runs(process):
    """Whether a process does; one that has ended stays until its parent takes notice."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_nothing(how, tmp_path):
    command = [
        *(sys.executable, str(LOOKUP), "--tables", "1x500", "--dims", "16", "--batches", "32"),
        *("--only", "forward", "--peers", "gather limit", "--hotness", "3", "--seconds", "100"),
        *("--torch-python", str(tmp_path / "absent"), "--json", str(tmp_path / "a.json")),
    ]
    process = subprocess.Popen(
        command,
        env={**os.environ, "QUICK": "1"},
        stdout=subprocess.DEVNULL,
        # Where the tests run in the background, a shell has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    shared = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    folder = f"{lookup.FOLDER}{process.pid}-*"
    started = time.monotonic()
    while not (children := _left(process.pid)) or not list(shared.glob(folder)):
        assert process.poll() is None and time.monotonic() - started < 60
        time.sleep(0.02)
    process.send_signal(how)
    process.wait(timeout=60)
    while any(map(_runs, children)):
        assert time.monotonic() - started < 90
        time.sleep(0.02)
    if how == signal.SIGKILL:  # then the next run clears up
        with lookup.shared_folder():
            pass
    assert list(shared.glob(folder)) == []
    assert process.returncode == (-how if how == signal.SIGKILL else 128 + how)


def test_every_peer_of_the_table_has_its_adapter():
    for peer in workers.PEERS:
        path = LOOKUP.parent / "adapters" / f"{peer.adapter}.py"
        assert "class Adapter(" in path.read_text(), peer.name
        assert set(peer.copies) <= set(report.GOALS)
