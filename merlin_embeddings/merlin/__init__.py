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

from merlin_embeddings import compat

if compat.has_keras_3():
    raise ImportError(
        "merlin_embeddings.merlin is for merlin-models, which runs on Keras 2: TensorFlow 2.12, or "
        "a later one with tf_keras and TF_USE_LEGACY_KERAS=1 in the environment before TensorFlow "
        "is imported. On Keras 3 merlin_embeddings.layers.InputBlock makes the same input block "
        "from the same schema."
    )
try:
    importlib.import_module("merlin.models.tf")
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("merlin"):
        raise
    raise ImportError(
        "merlin_embeddings.merlin needs merlin-models: pip install merlin-models==23.12.*"
    ) from error

from merlin_embeddings.merlin.embedding_table import EmbeddingTable
from merlin_embeddings.merlin.retrieval import EmbeddingEncoder, MatrixFactorizationModelV2

__all__ = ["EmbeddingEncoder", "EmbeddingTable", "MatrixFactorizationModelV2"]
