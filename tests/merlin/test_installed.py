"""What `pip install --no-build-isolation .` puts into an environment."""

import importlib.metadata
import json
import subprocess
from pathlib import PurePosixPath

import tensorflow as tf

import merlin_embeddings


def installed():
    return importlib.metadata.files("merlin-embeddings")


def test_the_package_is_the_installed_one():
    init = next(f for f in installed() if str(f) == "merlin_embeddings/__init__.py")
    assert init.locate().samefile(merlin_embeddings.__file__)


def test_library_record_and_type_marker_are_there_once_each():
    names = [str(f) for f in installed()]
    for name in ("_ops/libmerlin_embeddings.so", "_ops/build.json", "py.typed"):
        assert names.count(f"merlin_embeddings/{name}") == 1
    record = next(f for f in installed() if f.name == "build.json")
    assert json.loads(record.read_text()) == {"tensorflow": tf.__version__}


def test_the_command_is_there():
    (command,) = [f for f in installed() if f.name == "merlin-embeddings"]
    ran = subprocess.run([command.locate(), "--help"], capture_output=True, text=True)
    assert (ran.returncode, "convert" in ran.stdout) == (0, True), ran.stderr


def test_nothing_else_is_installed():
    roots = {PurePosixPath(f).parts[0] for f in installed() if f.parent.name != "bin"}
    version = importlib.metadata.version("merlin-embeddings")
    assert roots == {"merlin_embeddings", f"merlin_embeddings-{version}.dist-info"}
