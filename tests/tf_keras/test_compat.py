"""merlin-models on TensorFlow 2.21: what makes it importable, and what it leaves alone.

The tests' process has imported `merlin_embeddings.merlin.compat` first, see Makefile.
"""

import ast
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import merlin.models.tf as mm
import pytest
import tensorflow as tf

import merlin_embeddings
from merlin_embeddings.merlin import compat


def sources():
    """The modules of merlin-models for TensorFlow, as the checked-out text."""
    return sorted(Path(mm.__file__).parent.rglob("*.py"))


def private_imports(path):
    """(module, name) of what a file imports from private parts of TensorFlow and Keras."""
    for node in ast.walk(ast.parse(path.read_text())):
        module = node.module if isinstance(node, ast.ImportFrom) and not node.level else ""
        if f"{module}.".startswith(("keras.", "tensorflow.python.")):
            yield from ((module, alias.name) for alias in node.names)


def test_keras_2_is_in_use():
    assert tf.__version__.startswith("2.21.")
    assert tf.keras.layers.Dense.__module__.startswith("tf_keras.")
    assert issubclass(mm.Model, tf.keras.Model)


@pytest.mark.parametrize(
    "name", [module.name for module in pkgutil.walk_packages(mm.__path__, "merlin.models.tf.")]
)
def test_every_module_is_imported(name):
    importlib.import_module(name)


def test_what_modules_found_is_what_tensorflow_and_keras_use():
    from tf_keras.src.engine import compile_utils, data_adapter, training
    from tf_keras.src.utils import generic_utils

    base = importlib.import_module("merlin.models.tf.models.base")
    assert base.MetricsContainer is compile_utils.MetricsContainer
    assert training.compile_utils is compile_utils
    assert base.unpack_x_y_sample_weight is data_adapter.unpack_x_y_sample_weight
    assert base.saving_lib is sys.modules["tf_keras.src.saving.saving_lib"]
    outputs = importlib.import_module("merlin.models.tf.outputs.base")
    assert outputs.generic_utils is generic_utils
    index = importlib.import_module("merlin.models.tf.core.index")
    assert index.to_dlpack is tf.experimental.dlpack.to_dlpack
    model = tf.keras.Model()
    model.numbers, model.names = [1], {"a": 1}
    assert isinstance(model.numbers, mm.ListWrapper)
    assert isinstance(model.names, mm._DictWrapper)


def test_the_table_of_what_moved_has_no_more_than_is_needed():
    used = {pair for path in sources() for pair in private_imports(path)}
    assert set(compat._MOVED) <= used
    assert {module for module, _ in used if module.startswith("keras.")}
    for module, name in compat._MOVED:
        with pytest.raises(ImportError):
            importlib.import_module(f"{module}.{name}")


def test_keras_is_still_keras_3_for_all_others():
    keras = importlib.import_module("keras")
    assert keras.__version__.startswith("3.") and sys.modules["keras"] is keras
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("keras.engine")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tensorflow.python.training.tracking")


def test_a_second_call_does_nothing():
    before = list(sys.meta_path)
    compat.apply()
    importlib.reload(compat)
    assert sys.meta_path == before


def future(tmp_path, monkeypatch, line):
    """A module of a later merlin-models, or of this one on a later TensorFlow."""
    (tmp_path / "future.py").write_text(line)
    monkeypatch.setattr(mm, "__path__", [*mm.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "merlin.models.tf.future", raising=False)
    importlib.invalidate_caches()
    return importlib.import_module("merlin.models.tf.future")


@pytest.mark.parametrize(
    "line, module, name, looked_at",
    [
        (
            "from tensorflow.python.nowhere import thing",
            "tensorflow.python.nowhere",
            "thing",
            "tensorflow.python.nowhere",
        ),
        (
            "from keras.utils import layer_utils, thing",
            "keras.utils",
            "thing",
            "tf_keras.src.utils",
        ),
        (
            "def late():\n    from keras.engine import thing\nlate()",
            "keras.engine",
            "thing",
            "tf_keras.src.engine",
        ),
    ],
)
def test_what_is_missing_is_named(tmp_path, monkeypatch, line, module, name, looked_at):
    with pytest.raises(ImportError) as raised:
        future(tmp_path, monkeypatch, line)
    assert f"imports {name} from {module}, which isn't at {looked_at}" in str(raised.value)
    assert tf.__version__ in str(raised.value)


def test_other_imports_are_pythons_own(tmp_path, monkeypatch):
    module = future(
        tmp_path,
        monkeypatch,
        "import keras\nimport tensorflow.python.framework.ops\nfrom . import core\n"
        "from tensorflow import keras as k\nfrom os import path\n",
    )
    assert module.keras is sys.modules["keras"]
    assert module.tensorflow is tf
    assert module.core is mm.core
    assert module.k.layers is tf.keras.layers
    assert module.path is os.path


def error_of(script, hidden=None, **environment):
    """The last line that a process says that fails."""
    checkout = str(Path(merlin_embeddings.__file__).parents[1])
    path = checkout if hidden is None else f"{hidden}{os.pathsep}{checkout}"
    inherited = {key: value for key, value in os.environ.items() if key != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**inherited, **environment, "PYTHONPATH": path},
    )
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_on_keras_3_the_way_out_is_named():
    error = error_of("import merlin_embeddings.merlin")
    assert error.startswith("ImportError: merlin-models needs Keras 2")
    for part in (
        "pip install --no-deps tf-keras==2.21.*",
        "TF_USE_LEGACY_KERAS=1 python train.py",
        "merlin_embeddings.layers.InputBlock",
    ):
        assert part in error


def test_without_tf_keras_the_way_out_is_named(tmp_path):
    (tmp_path / "tf_keras.py").write_text("raise ImportError('no tf_keras here')")
    error = error_of("import merlin_embeddings.merlin", tmp_path, TF_USE_LEGACY_KERAS="1")
    assert error.startswith("ImportError: TensorFlow 2.21")
    assert "pip install --no-deps tf-keras==2.21.*" in error


def test_a_choice_of_keras_that_comes_too_late_is_said():
    error = error_of(
        "import os, tensorflow\n"
        "os.environ['TF_USE_LEGACY_KERAS'] = '1'\n"
        "import merlin_embeddings.merlin"
    )
    assert error.startswith(
        "ImportError: tf.keras is Keras 2 and `import tensorflow.keras` Keras 3"
    )
    assert "TF_USE_LEGACY_KERAS=1 python train.py" in error
