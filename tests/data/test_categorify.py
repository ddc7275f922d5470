"""The reader of categories against NVTabular itself: its workflows, its transforms."""

import dataclasses
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import nvtabular as nvt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_embeddings.data import Categories
from tests.data.categorified import FRAME, NEW, SCALARS, fit, transformed

OPTIONS = {
    "plain": {},
    "buckets": {"num_buckets": 3},
    "threshold": {"freq_threshold": 2},
    "threshold and buckets": {"freq_threshold": 2, "num_buckets": 4},
    "size": {"max_size": 5},
    "size and buckets": {"max_size": 6, "num_buckets": 2},
    "each its own": {
        "num_buckets": dict.fromkeys(SCALARS, 3) | {"int": 2},
        "max_size": dict.fromkeys(SCALARS, 7) | {"int": 5},
    },
    "in parts": {"split_out": 3},
    "in parts, with a size": {"split_out": 3, "max_size": 6, "num_buckets": 2},
}


@dataclasses.dataclass
class Fitted:
    folder: Path
    workflow: nvt.Workflow
    options: dict
    encoded: pd.DataFrame
    new: pd.DataFrame


@pytest.fixture(scope="module", params=OPTIONS, ids=[name.replace(" ", "-") for name in OPTIONS])
def fitted(request, tmp_path_factory):
    folder, options = tmp_path_factory.mktemp("fit"), OPTIONS[request.param]
    workflow = fit(folder, SCALARS, parts=2, **options)
    return Fitted(
        folder, workflow, options, transformed(workflow, FRAME), transformed(workflow, NEW)
    )


@pytest.fixture(params=["workflow", "loaded", "moved folder", "categories folder", "schema"])
def source(request, fitted, tmp_path):
    folder, workflow = fitted.folder, fitted.workflow
    if request.param == "workflow":
        return workflow
    if request.param == "loaded":
        return nvt.Workflow.load(folder / "saved")
    if request.param == "schema":
        return workflow.output_schema
    shutil.copytree(folder / "saved", tmp_path / "elsewhere")
    for meta in (folder / "fit" / "categories").glob("meta.*"):
        shutil.copy(meta, tmp_path / "elsewhere" / "categories")
    return tmp_path / "elsewhere" / ("categories" if "categories" in request.param else "")


def test_what_the_workflow_gives(fitted, source):
    encoded, new = fitted.encoded, fitted.new
    for column in SCALARS:
        categories = Categories.of(source, column)
        np.testing.assert_array_equal(categories.ids(FRAME[column]), encoded[column], column)
        np.testing.assert_array_equal(categories.ids(NEW[column]), new[column], column)
        domain = fitted.workflow.output_schema[column].properties["domain"]
        assert categories.cardinality == domain["max"] + 1
        assert (categories.name, categories.columns) == (column, (column,))


def test_counts_are_those_of_the_encoded_column(fitted, source):
    encoded, options = fitted.encoded, fitted.options
    for column in SCALARS:
        categories = Categories.of(source, column)
        counts, seen = (
            categories.counts,
            np.bincount(encoded[column], minlength=categories.cardinality),
        )
        assert counts.dtype == np.int64
        # Of buckets only the sum is known.
        oov = slice(categories.oov.start, categories.oov.stop)
        if "split_out" in options and "max_size" in options:  # Categorify doesn't count all
            assert counts[oov].sum() <= seen[oov].sum()
        else:
            assert counts[oov].sum() == seen[oov].sum()
        assert np.ptp(counts[oov]) <= 1
        counts[oov] = seen[oov]
        np.testing.assert_array_equal(counts, seen, column)


def test_values_of_ids(fitted, source):
    encoded = fitted.encoded
    for column in SCALARS:
        categories = Categories.of(source, column)
        values = categories.values(encoded[column].to_numpy())
        for id_, value, raw in zip(encoded[column], values, FRAME[column], strict=True):
            assert (value is None) if id_ not in categories.unique else value == raw
        assert list(categories.values(np.arange(categories.unique.start))) == [None] * (
            categories.unique.start
        )


def test_ranges_follow_the_options(fitted, source):
    options = fitted.options
    categories = Categories.of(source, "int")
    buckets = options.get("num_buckets") or 1
    buckets = buckets["int"] if isinstance(buckets, dict) else buckets
    assert (categories.pad, categories.null) == (0, 1)
    assert categories.oov == range(2, 2 + buckets)
    assert categories.unique.start == 2 + buckets
    assert list(range(categories.cardinality)) == [0, 1, *categories.oov, *categories.unique]


@pytest.mark.parametrize("kind", ["list", "numpy", "arrow", "chunks", "pandas"])
def test_kinds_of_raw_values(tmp_path, kind):
    fit(tmp_path, ["holes", "text"])
    make = {
        "list": lambda s: [None if pd.isna(v) else v for v in s],
        "numpy": lambda s: s.to_numpy(),
        "arrow": lambda s: pa.array(s, from_pandas=True),
        "chunks": lambda s: pa.chunked_array([pa.array(s[:3]), pa.array(s[3:])]),
        "pandas": lambda s: s,
    }[kind]
    for column, wanted in (("holes", [5, 1, 2, 3, 2, 2, 4, 2]), ("text", [5, 2, 2, 1, 2, 3, 4, 2])):
        got = Categories.of(tmp_path / "saved", column).ids(make(NEW[column]))
        assert (got.dtype, list(got)) == (np.int64, wanted)


def test_no_raw_values_at_all(tmp_path):
    fit(tmp_path, ["int"])
    categories = Categories.of(tmp_path / "saved", "int")
    assert categories.ids([]).tolist() == []
    assert categories.values([]).tolist() == []
    assert categories.ids([None]).tolist() == [1]


def test_shape_of_ids_is_kept(tmp_path):
    fit(tmp_path, ["int"])
    values = Categories.of(tmp_path / "saved", "int").values([[3, 0], [4, 2]])
    assert values.tolist() == [[5, None], [7, None]]


def test_list_columns(tmp_path):
    frame = pd.DataFrame({"tags": [["a", "b"], ["b"], [], ["c", "b", "a"]]})
    workflow = fit(tmp_path, ["tags"], frame)
    categories = Categories.of(workflow, "tags")
    flat = [value for row in frame["tags"] for value in row]
    encoded = [id_ for row in transformed(workflow, frame)["tags"] for id_ in row]
    assert categories.ids(flat).tolist() == encoded
    assert categories.values(encoded).tolist() == flat
    assert categories.counts.tolist() == [0, 0, 0, 3, 2, 1]


@pytest.mark.parametrize("options", [{}, {"num_buckets": 3, "max_size": 6}])
def test_columns_encoded_together(tmp_path, options):
    workflow = fit(tmp_path, [["small", "other"], "text"], **options)
    shutil.copytree(tmp_path / "saved", tmp_path / "moved")
    new = transformed(workflow, NEW)
    schema = workflow.output_schema
    for column in ("small", "other"):
        for source in (tmp_path / "moved", workflow):
            by_name = Categories.of(source, column)
            assert by_name.name == "small_other"
            for categories in (by_name, Categories.of(source, schema[column])):
                np.testing.assert_array_equal(categories.ids(NEW[column]), new[column])
                assert categories.cardinality == schema[column].properties["domain"]["max"] + 1
    encoded = transformed(workflow, FRAME)
    seen = Counter(encoded["small"]) + Counter(encoded["other"])
    # All that is out of the vocabulary goes to the first bucket, whatever their number.
    assert dict(enumerate(by_name.counts)) == {i: seen[i] for i in range(by_name.cardinality)}


def test_columns_encoded_together_with_buckets_for_each(tmp_path):
    buckets = {"small_other": 3, "small": 3, "other": 2, "text": 2}
    workflow = fit(tmp_path, [["small", "other"], "text"], num_buckets=buckets, max_size=7)
    new = transformed(workflow, NEW)
    for column in ("small", "other", "text"):
        np.testing.assert_array_equal(Categories.of(workflow, column).ids(NEW[column]), new[column])


@pytest.mark.parametrize("options", [{}, {"num_buckets": 2, "max_size": 9}])
def test_combinations(tmp_path, options):
    workflow = fit(tmp_path, [["small", "text"], "text"], encode_type="combo", **options)
    shutil.copytree(tmp_path / "saved", tmp_path / "moved")
    pairs = pd.concat([FRAME, NEW, FRAME], ignore_index=True)
    encoded = transformed(workflow, pairs)
    for source in (workflow, tmp_path / "moved"):
        categories = Categories.of(source, "small_text")
        assert categories.columns == ("small", "text")
        np.testing.assert_array_equal(
            categories.ids(pairs[["small", "text"]]), encoded["small_text"]
        )
        np.testing.assert_array_equal(
            Categories.of(source, "text").ids(pairs["text"]), encoded["text"]
        )
        rows = list(zip(pairs["small"], pairs["text"], strict=True))
        if not options:
            assert categories.ids(rows).tolist() == encoded["small_text"].tolist()
        for row, value in zip(rows, categories.values(encoded["small_text"]), strict=True):
            assert value in (row, None)
        assert categories.values([0, categories.unique.start])[0] is None
        assert categories.counts[categories.unique.start :].sum() == (8 if not options else 5)


def test_combinations_of_three(tmp_path):
    workflow = fit(tmp_path, [["int", "small", "text"]], encode_type="combo")
    categories = Categories.of(workflow, "int_small_text")
    assert categories.columns == ("int", "small", "text")
    for frame in (FRAME, NEW):
        rows = {column: frame[column] for column in categories.columns}
        np.testing.assert_array_equal(
            categories.ids(rows), transformed(workflow, frame)["int_small_text"]
        )


def test_a_name_that_is_part_of_two_encodings(tmp_path):
    fit(tmp_path, [["small", "text"], ["text", "int"]], encode_type="combo")
    with pytest.raises(
        ValueError, match=r"'text' may be encoded in any of \['small_text', 'text_int'"
    ):
        Categories.of(tmp_path / "saved", "text")


def test_parts_come_in_the_order_of_their_numbers(tmp_path):
    frame = pd.DataFrame({"item": np.repeat(np.arange(12), np.arange(12, 0, -1))})
    workflow = fit(tmp_path, ["item"], frame)
    path = tmp_path / "saved" / "categories" / "unique.item.parquet"
    whole = pd.read_parquet(path)
    path.unlink()
    path.mkdir()
    for part in range(12):
        whole.iloc[part : part + 1].to_parquet(path / f"part.{part}.parquet")
    categories = Categories.of(workflow, "item")
    assert categories.values(np.arange(3, 15)).tolist() == list(range(12))
    assert categories.counts[3:].tolist() == list(range(12, 0, -1))


def test_labels_of_rows_may_be_gone(tmp_path):
    """Other readers and writers drop the labels that pandas keeps."""
    fit(tmp_path, ["text"], num_buckets=3)
    path = tmp_path / "fit" / "categories" / "unique.text.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata(), path)
    assert Categories.of(tmp_path / "fit", "text").ids(["x", None]).tolist() == [5, 1]


def test_the_description_may_be_gone(tmp_path):
    fit(tmp_path, ["text"], num_buckets=3)
    categories = Categories.of(tmp_path / "saved", "text")
    assert (categories.oov, categories.cardinality) == (range(2, 5), 8)


def test_a_vocabulary_without_labels_and_description(tmp_path):
    workflow = fit(tmp_path, ["text"], num_buckets=3)
    path = tmp_path / "saved" / "categories" / "unique.text.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata(), path)
    with pytest.raises(ValueError, match=r"nobody knows the id of the first value"):
        Categories.of(tmp_path / "saved", "text")
    for source, column in (
        (workflow, "text"),
        (tmp_path / "saved", workflow.output_schema["text"]),
    ):
        assert Categories.of(source, column).ids(["x", None]).tolist() == [5, 1]


def test_counts_of_a_saved_workflow(tmp_path):
    """It has no descriptions; those of the fit are taken while they are there and of this fit."""
    options = {"freq_threshold": 2, "num_buckets": 2}
    workflow = fit(tmp_path, ["text"], **options)
    saved, column = tmp_path / "saved", workflow.output_schema["text"]
    whole = [0, 1, 1, 0, 4, 2]
    for source in (workflow, nvt.Workflow.load(saved)):
        assert Categories.of(source, "text").counts.tolist() == whole
    assert Categories.of(saved, column).counts.tolist() == whole
    with pytest.warns(UserWarning, match=r"'text': there is no meta.text.parquet beside .* as 0"):
        assert Categories.of(saved, "text").counts.tolist() == [0, 0, 0, 0, 4, 2]

    meta = tmp_path / "fit" / "categories" / "meta.text.parquet"
    fit(tmp_path / "more", ["text"], FRAME.assign(text=list("aabbccdd")), **options)
    shutil.copy(tmp_path / "more" / "fit" / "categories" / "meta.text.parquet", meta)
    for content in ("another fit", None):
        if content is None:
            meta.unlink()
        with pytest.warns(UserWarning, match=r"count as 0"):
            assert Categories.of(saved, column).counts.tolist() == [0, 0, 0, 0, 4, 2]


def test_a_given_vocabulary(tmp_path):
    workflow = fit(tmp_path, ["text"], vocabs={"text": pd.Series(["q", "x", "y"])})
    categories = Categories.of(workflow, "text")
    np.testing.assert_array_equal(categories.ids(NEW["text"]), transformed(workflow, NEW)["text"])
    with pytest.raises(ValueError, match=r"'text': .* has no counts, as this vocabulary was given"):
        _ = categories.counts


def test_a_vocabulary_in_a_given_file(tmp_path):
    path = str(tmp_path / "words.parquet")
    pd.DataFrame({"rank": [1, 2], "text": ["y", "x"]}).to_parquet(path)
    workflow = fit(tmp_path, ["text"], vocabs={"text": path})
    categories = Categories.of(workflow, "text")
    np.testing.assert_array_equal(categories.ids(NEW["text"]), transformed(workflow, NEW)["text"])


def test_a_column_of_nulls(tmp_path):
    """Categorify writes no vocabulary then."""
    frame = pd.DataFrame({"none": [None, None], "int": [1, 2]}).astype({"none": "float64"})
    with pytest.raises(RuntimeError):  # nor can it transform
        fit(tmp_path, ["none"], frame)
    categories = Categories.of(tmp_path / "fit", "none")
    assert categories.cardinality == 3
    assert categories.counts.tolist() == [0, 2, 0]
    assert categories.ids([None, 1.5]).tolist() == [1, 2]
    assert categories.values([1, 2]).tolist() == [None, None]
