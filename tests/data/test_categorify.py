"""The reader of categories against NVTabular itself: its workflows, its transforms."""

import dataclasses
import shutil
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import nvtabular as nvt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from merlin.io import Dataset

from merlin_embeddings.data import Categories, Column, Domain

FRAME = pd.DataFrame(
    {
        "int": [5, 5, 5, 7, 7, 9, -2, 5],
        "small": np.array([3, 3, 1, 2, 2, 2, 8, 9], "int32"),
        "other": [1, 2, 3, 4, 3, 3, 3, 3],
        "holes": [5, 5, None, 7, 7, 9, None, 5],
        "text": ["x", "y", "x", None, "zz", "x", "x", "y"],
        "real": [0.5, 0.5, 1.5, 2.5, np.nan, 0.5, 0.5, -1],
        "single": np.array([0.1, 0.1, 0.2, 0.3, 0.1, 0.1, 0.1, 0.2], "float32"),
    }
)
# Values that the fit saw, values that it didn't, and nulls.
NEW = pd.DataFrame(
    {
        "int": [9, 5, 77, -2, 78, 79, 7, 80],
        "small": np.array([8, 4, 5, 6, 7, 2, 3, -1], "int32"),
        "other": [4, 3, 2, 1, 0, 9, 8, 7],
        "holes": [9, None, 77, 5, 78, 79, 7, 80],
        "text": ["zz", "a", "b", None, "c", "x", "y", "d"],
        "real": [2.5, 9.5, np.nan, 0.5, 8.5, 7.5, -1, 0.0],
        "single": np.array([0.3, 0.1, 0.4, 0.5, 0.6, 0.7, 0.8, 0.2], "float32"),
    }
)
SCALARS = list(FRAME)


def fit(folder, columns, frame=FRAME, parts=1, **options):
    """A fitted workflow, saved to `folder / "saved"`."""
    op = nvt.ops.Categorify(out_path=str(folder / "fit"), **options)
    workflow = nvt.Workflow(columns >> op)
    workflow.fit(Dataset(frame, npartitions=parts))
    workflow.save(folder / "saved")
    return workflow


def transformed(workflow, frame):
    return workflow.transform(Dataset(frame)).to_ddf().compute()


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


# --- Bad input -----------------------------------------------------------------------------------


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone: no such folder, so no categories of 'int'"):
        Categories.of(tmp_path / "gone", "int")


def test_folder_without_categories(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no files unique.<column>.parquet"):
        Categories.of(tmp_path, "int")


def test_unknown_column(tmp_path):
    workflow = fit(tmp_path, ["int", "text"])
    for source in (workflow, tmp_path / "saved"):
        with pytest.raises(ValueError, match=r"no encoding of .*'city'.*\['int', 'text'\]"):
            Categories.of(source, "city")
    with pytest.raises(ValueError, match=r"The schema has no column 'city'"):
        Categories.of(workflow.output_schema, "city")


def test_workflow_without_categorify():
    workflow = nvt.Workflow(["int"] >> nvt.ops.Normalize())
    with pytest.raises(
        ValueError, match=r"no fitted Categorify, so nothing is known of column 'int'"
    ):
        Categories.of(workflow, "int")


def test_schema_of_a_column_that_is_not_encoded(tmp_path):
    workflow = fit(tmp_path, ["int"])
    with pytest.raises(ValueError, match=r"'int': the schema doesn't say where"):
        Categories.of(workflow.input_schema, "int")


def test_files_that_moved(tmp_path):
    workflow = fit(tmp_path, ["int"])
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    shutil.rmtree(tmp_path / "fit")
    for source in (workflow, workflow.output_schema):
        with pytest.raises(FileNotFoundError, match=r"Categories.of\(folder, column\)"):
            Categories.of(source, "int")
    assert Categories.of(tmp_path / "moved", "int").ids([5]).tolist() == [3]


def damage(path, how):
    content = path.read_bytes()
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut off":
        path.write_bytes(content[:-20])
    else:
        path.write_bytes(b"PAR1" + b"\xff" * 60 + content[64:])


@pytest.mark.parametrize("how", ["empty", "cut off", "overwritten"])
@pytest.mark.parametrize("file", ["unique", "meta"])
def test_damaged_files(tmp_path, file, how):
    fit(tmp_path, ["text"])
    damage(tmp_path / "fit" / "categories" / f"{file}.text.parquet", how)
    with pytest.raises(
        ValueError, match=rf"{file}.text.parquet: \d+ bytes that aren't a whole Parq"
    ):
        Categories.of(tmp_path / "fit", "text").values([3])


def test_missing_vocabulary(tmp_path):
    fit(tmp_path, ["text"])
    (tmp_path / "fit" / "categories" / "unique.text.parquet").unlink()
    with pytest.raises(FileNotFoundError, match=r"unique.text.parquet: not there"):
        Categories.of(tmp_path / "fit", "text")


def test_folder_of_no_parts(tmp_path):
    fit(tmp_path, ["text"])
    path = tmp_path / "fit" / "categories" / "unique.text.parquet"
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match=r"a folder without files part.N.parquet"):
        Categories.of(tmp_path / "fit", "text")


def test_files_of_two_fits(tmp_path):
    fit(tmp_path / "a", ["text"])
    fit(tmp_path / "b", ["text"], frame=FRAME.assign(text="x"))
    name = "fit/categories/unique.text.parquet"
    shutil.copy(tmp_path / "b" / name, tmp_path / "a" / name)
    with pytest.raises(ValueError, match=r"has 1 values, but meta.text.parquet beside it says 3"):
        Categories.of(tmp_path / "a" / "fit", "text")


def test_files_that_categorify_did_not_write(tmp_path):
    pd.DataFrame({"kind": ["pad"], "rows": [1]}).to_parquet(tmp_path / "meta.text.parquet")
    pd.DataFrame({"text": ["x"]}).to_parquet(tmp_path / "unique.text.parquet")
    with pytest.raises(
        ValueError, match=r"meta.text.parquet: isn't the description of an encoding"
    ):
        Categories.of(tmp_path, "text")


def test_one_table_for_all(tmp_path):
    workflow = fit(tmp_path, ["int", "text"], single_table=True)
    with pytest.raises(ValueError, match=r"ids begin at 7, where 3 are expected"):
        Categories.of(workflow, "text")


def test_ids_out_of_range(tmp_path):
    categories = Categories.of(fit(tmp_path, ["text"]), "text")
    with pytest.raises(ValueError, match=r"'text': id 6 at position 1 is not in \[0, 6\)"):
        categories.values([5, 6])
    with pytest.raises(ValueError, match=r"id -1 at position 0"):
        categories.values([-1])
    with pytest.raises(TypeError, match=r"ids are integers, got float64"):
        categories.values([1.0])


def test_raw_values_of_another_type(tmp_path):
    workflow = fit(tmp_path, ["text", "int"])
    with pytest.raises(
        TypeError, match=r"'text': values of column 'text' have the type string; they"
    ):
        Categories.of(workflow, "text").ids([1, 2])
    with pytest.raises(TypeError, match=r"'int': values of column 'int' have the type int64; they"):
        Categories.of(workflow, "int").ids(["5"])
    with pytest.raises(ValueError, match=r"'int' can't take these values as int64: .*1.5"):
        Categories.of(workflow, "int").ids([1.5])


def test_combinations_of_another_form(tmp_path):
    workflow = fit(tmp_path, [["small", "text"]], encode_type="combo")
    categories = Categories.of(workflow, "small_text")
    with pytest.raises(
        ValueError, match=r"one part for each of \['small', 'text'\]; row 1 is \(3,\)"
    ):
        categories.ids([(3, "x"), (3,)])
    with pytest.raises(ValueError, match=r"values of column 'text' are missing"):
        categories.ids({"small": [3]})
    with pytest.raises(ValueError, match=r"one length .* 'small' has 1, 'text' has 2"):
        categories.ids({"small": [3], "text": ["x", "y"]})


def test_a_column_that_is_found_in_another_s_name(tmp_path):
    """A folder doesn't say whether user_id is user and id, encoded together."""
    table = pd.DataFrame({"user_id": [7, 8], "user_id_size": [2, 1]}, pd.RangeIndex(3, 5))
    table.to_parquet(tmp_path / "unique.user_id.parquet")
    with pytest.warns(UserWarning, match=r"column 'user' has no encoding of its own; .*'user_id'"):
        Categories.of(str(tmp_path), "user")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        user = Column("user", domain=Domain("user_id", 0, 4), freq_threshold=0)
        assert Categories.of(str(tmp_path), user).name == "user_id"
        assert Categories.of(str(tmp_path), "user_id").name == "user_id"
