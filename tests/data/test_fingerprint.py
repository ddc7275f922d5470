"""Fingerprints of real workflows: what leaves them as they are, what doesn't, and in a model."""

import shutil

import numpy as np
import nvtabular as nvt
import pandas as pd
import pytest
from merlin.io import Dataset
from merlin.schema import Tags
from tensorflow import keras

import merlin_embeddings as me
from merlin_embeddings.data import Fingerprint, check_fingerprint

FRAME = pd.DataFrame(
    {
        "city": ["Rome", "Oslo", "Rome", "Bonn", "Rome", "Oslo"],
        "a": [1, 2, 3, 1, 1, 2],
        "b": [3, 3, 2, 1, 1, 1],
        "age": [30.0, np.nan, 41.0, 52.0, 23.0, 34.0],
        "click": [0.0, 1, 0, 1, 1, 0],
    }
)


def fit(folder, frame=FRAME, fill=1.0, **options):
    out = str(folder / "fit")
    city = ["city"] >> nvt.ops.Categorify(out_path=out, **options)
    pair = [["a", "b"]] >> nvt.ops.Categorify(out_path=out, encode_type="joint")
    age = ["age"] >> nvt.ops.FillMissing(fill) >> nvt.ops.Normalize()
    click = (
        ["click"] >> nvt.ops.Normalize() >> nvt.ops.AddMetadata(tags=[Tags.REGRESSION, Tags.TARGET])
    )
    workflow = nvt.Workflow(city + pair + age + click)
    workflow.fit(Dataset(frame))
    workflow.save(folder / "saved")
    return workflow


def test_the_same_after_a_move(tmp_path):
    workflow = fit(tmp_path)
    before = Fingerprint.of(workflow)
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    shutil.rmtree(tmp_path / "fit")
    again = Fingerprint.of(nvt.Workflow.load(tmp_path / "moved"))
    assert again == before
    before.check(again)
    before.check(nvt.Workflow.load(tmp_path / "moved"))


def test_the_same_of_another_fit(tmp_path):
    rows = FRAME.iloc[::-1].reset_index(drop=True)
    assert Fingerprint.of(fit(tmp_path / "1")) == Fingerprint.of(fit(tmp_path / "2", rows))


def test_targets_may_change_and_go(tmp_path):
    before = Fingerprint.of(fit(tmp_path / "1"))
    before.check(fit(tmp_path / "2", FRAME.assign(click=FRAME["click"] * 2)))
    before.check(nvt.Workflow.load(tmp_path / "1" / "saved").remove_inputs(["click"]))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (
            {"city": ["Rome", "Oslo", "Rome", "Bonn", "Rome", "Paris"]},
            {},
            r"column 'city': largest id was 5, is 6\n  column 'city': cardinality was 6, is 7",
        ),
        # As many values, in another order.
        (
            {"city": ["Rome", "Oslo", "Oslo", "Bonn", "Rome", "Oslo"]},
            {},
            r"trained with:\n  column 'city': vocabulary was '\w+', is '\w+'\n",
        ),
        (
            {"b": [3, 3, 3, 3, 3, 3]},
            {},
            r"column 'a': vocabulary was .*\n  column 'b': vocabulary was",
        ),
        ({}, {"num_buckets": 2}, r"column 'city': ids out of the vocabulary was 1, is 2"),
        ({}, {"freq_threshold": 2}, r"column 'city': cardinality was 6, is 5"),
        ({"age": FRAME["age"] + 1}, {}, r"column 'age': Normalize.means was [\d.]+, is [\d.]+"),
        ({}, {"fill": 2.0}, r"column 'age': FillMissing.fill_val was 1.0, is 2.0"),
    ],
)
def test_changes(tmp_path, change, options, message):
    before = Fingerprint.of(fit(tmp_path / "before"))
    after = fit(tmp_path / "after", FRAME.assign(**change), **options)
    with pytest.raises(ValueError, match=message):
        before.check(after)


def test_missing_columns(tmp_path):
    before = Fingerprint.of(fit(tmp_path))
    less = nvt.Workflow.load(tmp_path / "saved").remove_inputs(["age"])
    with pytest.raises(ValueError, match=r"column 'age' is missing"):
        before.check(less)
    Fingerprint.of(less).check(before)  # more columns than the model takes


def test_an_operator_less(tmp_path):
    before = Fingerprint.of(fit(tmp_path / "1"))
    age = ["age"] >> nvt.ops.Normalize()
    workflow = nvt.Workflow(age)
    workflow.fit(Dataset(FRAME.fillna(1.0)))
    wanted = Fingerprint({"age": before.facts["age"]}, True)
    with pytest.raises(ValueError, match=r"'age': FillMissing.fill_val was 1.0, is None"):
        wanted.check(workflow)


def test_a_schema_knows_less(tmp_path):
    workflow = fit(tmp_path)
    before = Fingerprint.of(workflow)
    before.check(workflow.output_schema)
    Fingerprint.of(workflow.output_schema).check(workflow)
    schema = workflow.output_schema
    schema["city"] = schema["city"].with_properties({"domain": {"min": 0, "max": 9}})
    with pytest.raises(ValueError, match=r"'city': largest id was 5, is 9"):
        before.check(schema)


def test_files_of_other_statistics(tmp_path):
    def joined(folder, frame):
        op = nvt.ops.JoinGroupby(cont_cols=["age"], stats=["sum"], out_path=str(folder))
        workflow = nvt.Workflow(["city"] >> op)
        workflow.fit(Dataset(frame))
        workflow.save(folder / "saved")
        return workflow

    before = Fingerprint.of(joined(tmp_path / "1", FRAME))
    before.check(nvt.Workflow.load(tmp_path / "1" / "saved"))
    with pytest.raises(ValueError, match=r"'city_age_sum': JoinGroupby.categories was"):
        before.check(joined(tmp_path / "2", FRAME.assign(age=FRAME["age"] + 1)))


def test_files_that_are_gone(tmp_path):
    workflow = fit(tmp_path)
    shutil.rmtree(tmp_path / "saved")
    with pytest.raises(FileNotFoundError, match=r"unique.*parquet"):
        Fingerprint.of(workflow)


def test_plain_data_and_back(tmp_path):
    before = Fingerprint.of(fit(tmp_path))
    assert me.config.from_plain(me.config.to_plain(before)) == before


@pytest.fixture
def model():
    def make(workflow, **options):
        schema = workflow.output_schema
        block = me.layers.InputBlock(schema, **options)
        inputs = me.data.keras_inputs(schema)
        return keras.Model(inputs, keras.layers.Dense(1)(block(inputs)), name="clicks")

    return make


def test_kept_with_the_model(tmp_path, model):
    workflow = fit(tmp_path)
    trained = model(workflow, fingerprint=Fingerprint.of(workflow))
    trained.save(tmp_path / "model.keras")
    served = keras.models.load_model(tmp_path / "model.keras")
    check_fingerprint(served, nvt.Workflow.load(tmp_path / "saved"))
    other = fit(tmp_path / "other", FRAME.assign(age=FRAME["age"] * 2))
    with pytest.raises(ValueError, match=r"column 'age': Normalize.means was"):
        check_fingerprint(served, other)
    with pytest.raises(ValueError, match=r"column 'age': Normalize.means was"):
        check_fingerprint(keras.Sequential([served]), other)


def test_a_model_without(tmp_path, model):
    workflow = fit(tmp_path)
    with pytest.raises(ValueError, match=r"Model 'clicks' keeps no fingerprint"):
        check_fingerprint(model(workflow), workflow)
