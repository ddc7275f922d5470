"""What the reader of categories refuses: folders, files and columns that can't be right."""

import shutil
import warnings

import nvtabular as nvt
import pandas as pd
import pytest

from merlin_embeddings.data import Categories, Column, Domain
from tests.data.categorified import FRAME, fit


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
