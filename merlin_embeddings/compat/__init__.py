"""The few places where versions of TensorFlow and Keras differ."""

# First, since it says so if there is no Keras, which the others derive from.
from merlin_embeddings.compat import versions  # noqa: F401
from merlin_embeddings.compat.optimizer import (
    LegacyOptimizer,
    Optimizer,
    apply_gradients,
    callable_list,
    has_fixed_learning_rate,
    is_built,
    learning_rate_or_schedule,
    restore_loaded,
    settable,
)
from merlin_embeddings.compat.saved_state import KEY as SAVED_STATE
from merlin_embeddings.compat.saved_state import SavedState
from merlin_embeddings.compat.state import (
    build_optimizer,
    optimizer_variables,
    process_generator,
    random_variables,
)
from merlin_embeddings.compat.variables import (
    has_memory,
    mark_accessed,
    on_host,
    path_of,
    raw_variable,
    replicas_of,
    weight_name,
)
from merlin_embeddings.compat.versions import (
    add_weight,
    dtype_policy,
    has_keras_3,
    is_symbolic,
    only_asks_for_shapes,
)

__all__ = [
    "SAVED_STATE",
    "LegacyOptimizer",
    "Optimizer",
    "SavedState",
    "add_weight",
    "apply_gradients",
    "build_optimizer",
    "callable_list",
    "dtype_policy",
    "has_fixed_learning_rate",
    "has_keras_3",
    "has_memory",
    "is_built",
    "is_symbolic",
    "learning_rate_or_schedule",
    "mark_accessed",
    "on_host",
    "only_asks_for_shapes",
    "optimizer_variables",
    "path_of",
    "process_generator",
    "random_variables",
    "raw_variable",
    "replicas_of",
    "restore_loaded",
    "settable",
    "weight_name",
]
