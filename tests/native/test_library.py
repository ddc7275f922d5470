"""The library loads only into the TensorFlow it was built for."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf

from merlin_embeddings.native import library


@pytest.fixture
def folder(tmp_path):
    (tmp_path / library.PATH.name).touch()
    (tmp_path / "build.json").write_text(json.dumps({"tensorflow": "2.21.0"}))
    return tmp_path


def test_same_minor_version(folder):
    library.check_build(folder, "2.21.3")


def test_another_version(folder):
    with pytest.raises(ImportError, match=r"built for TensorFlow 2\.21\.0.*2\.20\.1.*Rebuild"):
        library.check_build(folder, "2.20.1")


def test_no_library(tmp_path):
    with pytest.raises(ImportError, match=r"no op library in .*Rebuild"):
        library.check_build(tmp_path, "2.21.0")


def test_the_loaded_one_fits():
    built = json.loads((library.FOLDER / "build.json").read_text())["tensorflow"]
    assert built.split(".")[:2] == tf.__version__.split(".")[:2]
