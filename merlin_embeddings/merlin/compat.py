"""Makes merlin-models importable on TensorFlow 2.21, with Keras 2 from the package tf_keras.

merlin-models 23.12 is written for TensorFlow up to 2.12 and imports private modules of TensorFlow
and Keras, some of which have moved since. Importing this module first lets it find them::

    TF_USE_LEGACY_KERAS=1 python train.py     # tf.keras is then Keras 2, from tf_keras

    import merlin_embeddings.merlin.compat    # or merlin_embeddings.merlin, which does it first
    import merlin.models.tf as mm

On TensorFlow 2.12 there is nothing to do, and this module does nothing.

Only what the modules of merlin-models themselves import is looked up elsewhere: they get an
``__import__`` of their own, in the builtins that Python lets a caller give to code that it executes
(see `exec`). Neither ``sys.modules`` nor anyone else's ``import keras`` changes, which is still
Keras 3 in the same process, and no class or function is replaced. What moved, all of it (every
import of merlin-models against TensorFlow 2.21 and tf_keras 2.21):

=======================================================  =======================================
merlin-models imports                                    it is now at
=======================================================  =======================================
private parts of ``keras.engine``, ``keras.layers``,     the same below ``tf_keras.src``: since
``keras.saving``, ``keras.utils``                        2.13 the sources of Keras are in ``src``
``to_dlpack`` of ``tensorflow.python``                   ``tf.experimental.dlpack``: public
``ListWrapper`` and ``_DictWrapper`` of                  ``tensorflow.python.trackable.``
``tensorflow.python.training.tracking.data_structures``  ``data_structures``
=======================================================  =======================================
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType, SimpleNamespace
from typing import Any

import tensorflow as tf
from tensorflow import keras

from merlin_embeddings import compat

_PACKAGE = "merlin.models"
_TRACKING = "tensorflow.python.training.tracking.data_structures"
_TRACKABLE = "tensorflow.python.trackable.data_structures"
# (module, name) as merlin-models writes it -> the module that has that name now.
_MOVED = {
    ("tensorflow.python", "to_dlpack"): "tensorflow.experimental.dlpack",
    (_TRACKING, "ListWrapper"): _TRACKABLE,
    (_TRACKING, "_DictWrapper"): _TRACKABLE,
}


def needed() -> bool:
    """Whether TensorFlow is later than 2.12, the last one that merlin-models is written for."""
    return tuple(int(part) for part in tf.__version__.split(".")[:2]) > (2, 12)


def apply() -> None:
    """Lets merlin-models find what moved. Importing this module does so; again, it does nothing.

    Raises:
        ImportError: TensorFlow's Keras is Keras 3; says how to start with Keras 2.
    """
    there = any(type(finder).__module__ == __name__ for finder in sys.meta_path)
    if there or not needed():
        return
    _check_keras()
    sys.meta_path.insert(0, _Finder())


def _check_keras() -> None:
    version = ".".join(tf.__version__.split(".")[:2])
    way = (
        f"Install it with `pip install --no-deps tf-keras=={version}.*` and set"
        " TF_USE_LEGACY_KERAS=1 before TensorFlow is imported, best where Python starts:"
        " `TF_USE_LEGACY_KERAS=1 python train.py`"
    )
    if compat.has_keras_3():
        raise ImportError(
            "merlin-models needs Keras 2, which is the package tf_keras for this TensorFlow"
            f" ({tf.__version__}); tf.keras is Keras {keras.__version__}. {way}. On Keras 3"
            " merlin_embeddings.layers.InputBlock makes the same input block from the same schema"
        )
    # TensorFlow reads the environment twice: for `import tensorflow.keras` when it is imported, for
    # tf.keras when that is first used.
    if importlib.import_module("tensorflow.keras.layers").Layer is not keras.layers.Layer:
        raise ImportError(
            "tf.keras is Keras 2 and `import tensorflow.keras` Keras 3: TF_USE_LEGACY_KERAS was set"
            f" after TensorFlow had been imported. {way}"
        )


class _Finder(MetaPathFinder):
    """Finds the modules of merlin-models as Python does, for a loader of ours."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PACKAGE and not fullname.startswith(_PACKAGE + "."):
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if type(spec.loader) is SourceFileLoader:
                    spec.loader = _Loader(spec.loader.name, spec.loader.path)
                return spec
        return None


class _Loader(SourceFileLoader):
    """Runs a module whose imports look where things have moved to."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """What ``from name import fromlist`` does in a module of merlin-models."""
    private = f"{name}.".startswith(("keras.", "tensorflow.python."))
    if level or not fromlist or not private:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    return SimpleNamespace(**{part: _find(name, part) for part in fromlist})


def _find(module: str, name: str) -> Any:
    there = _MOVED.get((module, name), module)
    if there.partition(".")[0] == "keras":
        there = keras.layers.Layer.__module__.partition(".")[0] + ".src" + there[len("keras") :]
    try:
        found = importlib.import_module(there)
        if hasattr(found, name):
            return getattr(found, name)
        return importlib.import_module(f"{there}.{name}")
    except ImportError as error:
        raise ImportError(
            f"merlin-models imports {name} from {module}, which isn't at {there} in TensorFlow"
            f" {tf.__version__}. merlin_embeddings.merlin.compat knows what moved up to TensorFlow"
            " 2.21; with that one, or with 2.12, it imports"
        ) from error


apply()
