"""The generator of click logs: what is drawn, what is written, and that it is bounded."""

import dataclasses
import re
import runpy
import sys
import tracemalloc

import numpy as np
import pyarrow.parquet as pq
import pytest
from criteo_data import CATEGORICAL, NUMERIC, Parameters, cardinalities, generate, load, schema
from criteo_data.parameters import CARDINALITIES, MULTI_HOT
from criteo_data.rows import Rows
from criteo_data.zipf import Zipf

SMALL = Parameters(
    12_000, 3_000, cardinalities=cardinalities(0.001), rows_per_file=8192, rows_per_group=4096
)
SOME_LISTS = tuple(4 if column in (1, 20) else 1 for column in range(26))


def read(folder):
    return pq.read_table(folder).to_pandas()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("small"), SMALL)


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0, 1.1, 2.0])
def test_ranks_follow_zipf(count, exponent):
    draws = 40_000
    ranks = Zipf(count, exponent).draw(np.random.default_rng(5), draws)
    assert ranks.dtype == np.int64 and ranks.min() == 0 and ranks.max() < count
    expected = np.arange(1, count + 1) ** -exponent
    expected *= draws / expected.sum()
    counts = np.bincount(ranks, minlength=count)
    # Ranks that expect few draws count as one; chi-square is then within five deviations.
    few = expected < 10
    counts = np.append(counts[~few], counts[few].sum())
    expected = np.append(expected[~few], max(expected[few].sum(), 1e-9))
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < len(counts) + 5 * np.sqrt(2 * len(counts))


def test_ranks_of_a_huge_table_reach_its_tail():
    ranks = Zipf(10_000_000, 1.1).draw(np.random.default_rng(1), 200_000)
    zeta = 10.584448464950801  # of 1.1; sums beyond a rank are integrals of x ** -1.1 there
    beyond = {rank: 10 * rank**-0.1 for rank in (1e6, 1e7)}
    expected = (beyond[1e6] - beyond[1e7]) / (zeta - beyond[1e7])
    np.testing.assert_allclose((ranks >= 1e6).mean(), expected, rtol=0.03)
    assert 9e6 < ranks.max() < 10_000_000


def test_cardinalities_are_criteos_scaled():
    assert cardinalities() == CARDINALITIES and len(CARDINALITIES) == len(MULTI_HOT) == 26
    assert sum(CARDINALITIES) == 33_762_577  # as the original DLRM counts them
    scaled = cardinalities(0.01)
    assert scaled[2] == 101_312 and scaled[0] == 15
    assert [scaled[c] for c in (1, 5, 8, 19)] == [10, 10, 3, 4]  # small columns stay what they are
    assert cardinalities(2)[8] == 6
    with pytest.raises(ValueError, match="scale must be positive, got 0"):
        cardinalities(0)


def test_columns_have_their_law_and_their_range(small):
    rows = read(small.train)
    assert list(rows.columns) == ["label", *NUMERIC, *CATEGORICAL]
    assert len(rows) == 12_000 and len(read(small.test)) == 3_000
    for name, count in zip(CATEGORICAL, SMALL.cardinalities, strict=True):
        counts = np.bincount(rows[name], minlength=count + 3)
        assert len(counts) == count + 3 and counts[0] == counts[2] == 0, name
        assert abs(counts[1] / len(rows) - 0.02) < 0.008, name  # nulls
        if count <= 10:
            assert (counts[3:] > 0).all(), name
    # A line through the logarithms of the twenty hottest ids of the largest table.
    counts = np.bincount(rows["C3"])[3:23]
    slope = np.polyfit(np.log(np.arange(1, 21)), np.log(counts), 1)[0]
    assert abs(slope + 1.1) < 0.1
    numbers = rows[list(NUMERIC)].to_numpy()
    assert numbers.dtype == np.float32
    np.testing.assert_allclose((numbers == numbers.min()).mean(), 0.2, atol=0.01)
    np.testing.assert_allclose(np.median(numbers, axis=0), 0, atol=0.05)
    np.testing.assert_allclose((numbers > 1.0).mean(), 0.1587, atol=0.01)  # as a normal law's


def test_an_exponent_for_each_column():
    exponents = tuple(0.5 + 0.05 * column for column in range(26))
    block = Rows(dataclasses.replace(SMALL, cardinalities=(50,) * 26, exponents=exponents))
    ids = block.block(0, 0, 20_000).ids
    for (values, _), exponent in zip(ids, exponents, strict=True):
        first, second = np.bincount(values, minlength=5)[3:5]
        assert abs(np.log2(first / second) - exponent) < 0.25


def test_equal_parameters_give_equal_files(small, tmp_path):
    again = generate(tmp_path / "again", SMALL, threads=1)
    files = [path for path in small.folder.rglob("*") if path.is_file()]
    names = sorted(str(path.relative_to(small.folder)) for path in files)
    assert names == [
        "criteo.json",
        *("test/.merlin/schema.json", "test/part-00000.parquet"),
        *("train/.merlin/schema.json", "train/part-00000.parquet", "train/part-00001.parquet"),
    ]
    for name in names:
        assert (small.folder / name).read_bytes() == (again.folder / name).read_bytes()
    other = generate(tmp_path / "other", dataclasses.replace(SMALL, seed=2))
    one, two = read(small.train), read(other.train)
    assert (one["C3"] == two["C3"]).mean() < 0.2 and (one["I1"] == two["I1"]).mean() < 0.2


def test_a_data_set_is_reused_only_for_its_own_parameters(tmp_path):
    few = dataclasses.replace(SMALL, train_rows=100, test_rows=200)
    first = generate(tmp_path, few)
    stamp = (first.train / "part-00000.parquet").stat().st_mtime_ns
    assert generate(tmp_path, few).record == first.record == load(tmp_path).record
    assert (first.train / "part-00000.parquet").stat().st_mtime_ns == stamp
    assert load(tmp_path).parameters == few
    generate(tmp_path, dataclasses.replace(few, train_rows=50))
    assert len(read(tmp_path / "train")) == 50
    (tmp_path / "criteo.json").unlink()  # as if writing had been interrupted
    with pytest.raises(FileNotFoundError):
        load(tmp_path)


def test_row_groups_bound_the_memory(tmp_path):
    def peak(rows):
        parameters = dataclasses.replace(SMALL, train_rows=rows, test_rows=100, rows_per_group=1024)
        tracemalloc.start()
        dataset = generate(tmp_path / str(rows), parameters, threads=1)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most, dataset

    small_peak, _ = peak(4 * 1024)
    large_peak, dataset = peak(64 * 1024)
    assert large_peak < 1.05 * small_peak
    parts = sorted(dataset.train.glob("*.parquet"))
    assert [pq.ParquetFile(part).metadata.num_row_groups for part in parts] == [8] * 8


def test_drift_changes_who_is_hot_but_not_the_law():
    def hottest(drift, first):
        parameters = dataclasses.replace(
            SMALL, train_rows=90_000, test_rows=10_000, drift=drift, cardinalities=(500,) * 26
        )
        values, _ = Rows(parameters).block(first // 10_000, first, 10_000).ids[0]
        counts = np.bincount(values, minlength=503)[3:]
        return np.argsort(counts)[::-1][:20], np.sort(counts)[::-1][:20]

    (before, law), (after, law_after) = hottest(0.0, 0), hottest(0.0, 90_000)
    assert len(set(before[:8]) & set(after[:8])) >= 7
    (early, law_early), (late, law_late) = hottest(1.0, 0), hottest(1.0, 90_000)
    assert len(set(early) & set(late)) <= 4
    for other in (law_after, law_early, law_late):
        # Some of the hottest change within these rows, which splits their count.
        np.testing.assert_allclose(other[:3], law[:3], rtol=0.15)
    # Half a change an id: about half of the hot ids have been replaced at the end.
    kept = len(set(hottest(0.5, 0)[0]) & set(hottest(0.5, 90_000)[0]))
    assert 6 <= kept <= 15


def test_multi_hot_columns_are_lists(tmp_path):
    dataset = generate(tmp_path, dataclasses.replace(SMALL, hotness=SOME_LISTS))
    table = pq.read_table(dataset.train)
    for name, hotness in zip(CATEGORICAL, SOME_LISTS, strict=True):
        assert str(table.schema.field(name).type) == (
            "int64" if hotness == 1 else "list<element: int64>"
        )
    lengths = np.array([len(ids) for ids in table["C21"].to_pylist()])
    np.testing.assert_allclose(np.bincount(lengths) / len(lengths), [0, *[0.25] * 4], atol=0.02)
    column = dataset.schema["C21"]
    assert column.is_list and column.is_ragged
    assert column.properties["value_count"] == {"min": 1, "max": 4}


def test_the_schema_is_the_one_a_workflow_leaves(small):
    from merlin.io import Dataset
    from merlin.schema import Tags

    made = schema(SMALL)
    assert made.column_names == ["label", *NUMERIC, *CATEGORICAL]
    assert made.select_by_tag(Tags.TARGET).column_names == ["label"]
    assert made.select_by_tag(Tags.CONTINUOUS).column_names == list(NUMERIC)
    assert made.select_by_tag(Tags.CATEGORICAL).column_names == list(CATEGORICAL)
    assert made["C3"].int_domain.max == SMALL.cardinalities[2] + 2
    assert made["C3"].properties["embedding_sizes"] == {
        "cardinality": 10_134,
        "dimension": round(1.6 * 10_134**0.56),
    }
    found = Dataset(str(small.train), engine="parquet").schema  # reads .merlin
    for column in made:
        read_back = found[column.name]
        assert read_back.tags == column.tags and read_back.int_domain == column.int_domain
        assert read_back.dtype.to_numpy == column.dtype.to_numpy
    types = pq.read_schema(small.train / "part-00000.parquet")
    assert [(field.name, str(field.type)) for field in types][13:15] == [
        ("I13", "float"),
        ("C1", "int64"),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hotness": (1, 2)}, "hotness: 26 columns, got 2 values"),
        ({"cardinalities": (0,) * 26}, "cardinalities must be positive integers"),
        ({"train_rows": 0}, "train_rows must be positive integers, got 0"),
        ({"nulls": 1.0}, r"nulls is a share in \[0, 1\), got 1.0"),
        ({"click_rate": 0}, r"click_rate is a share in \(0, 1\), got 0"),
        ({"exponents": 3.0}, r"exponents lie in \[0, 2\]"),
        ({"drift": -1.0}, r"drift \(-1.0\) and signal \(1.5\) must not be negative"),
        ({"shares": (1, 1, 0)}, r"shares: three that add up to 1, got \(1, 1, 0\)"),
        ({"rows_per_file": 5000}, r"rows_per_file \(5000\) must be a multiple of rows_per_group"),
    ],
)
def test_bad_parameters_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)


def test_the_command_line_says_what_was_made(tmp_path, monkeypatch, capsys):
    command = [str(tmp_path), "--train-rows", "2000", "--test-rows", "2000", "--scale", "0.0005"]
    monkeypatch.setattr(sys, "argv", ["criteo_data", *command, "--multi-hot", "--drift", "1"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("criteo_data", run_name="__main__")
    assert end.value.code == 0
    dataset = load(tmp_path)
    assert dataset.parameters.hotness == MULTI_HOT and dataset.parameters.drift == 1
    best = re.search(r"best test AUC (0\.\d{4})", capsys.readouterr().out)
    assert float(best[1]) == pytest.approx(dataset.best_auc, abs=1e-4)
