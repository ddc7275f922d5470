"""For models of merlin-models 23.12: our tables in their place, by one argument.

```python
import merlin.models.tf as mm
import merlin_embeddings.merlin as mem

model = mm.DLRMModel(
    schema,
    embeddings=mm.Embeddings(schema, dim=64, table_cls=mem.EmbeddingTable),
    ...
)
```

A process that loads a saved model needs no more than `import merlin_embeddings.merlin`.
"""

import importlib

# First: where merlin-models can't be imported as it is, this makes it, or says what to do.
from merlin_embeddings.merlin import compat  # noqa: F401

try:
    importlib.import_module("merlin.models.tf")
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("merlin"):
        raise
    raise ImportError(
        "merlin_embeddings.merlin needs merlin-models: pip install merlin-models==23.12.*"
    ) from error

from merlin_embeddings.merlin.embedding_table import EmbeddingTable
from merlin_embeddings.merlin.embeddings import Embeddings
from merlin_embeddings.merlin.multi_optimizer import MultiOptimizer
from merlin_embeddings.merlin.retrieval import EmbeddingEncoder, MatrixFactorizationModelV2

__all__ = [
    "EmbeddingEncoder",
    "EmbeddingTable",
    "Embeddings",
    "MatrixFactorizationModelV2",
    "MultiOptimizer",
]
