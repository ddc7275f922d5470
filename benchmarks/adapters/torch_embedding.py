"""torch.nn.functional.embedding, summed over a bag: what one-hot features may use in torch.

No pooling op, so it is measured beside EmbeddingBag and counts as none of the peers.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

from adapters import torch_embedding_bag


class Adapter(torch_embedding_bag.Adapter):
    def _lookups(self, ids: np.ndarray):
        _, _, bags, hotness = ids.shape
        flat = [[torch.from_numpy(table.reshape(-1).copy()) for table in batch] for batch in ids]

        def embedding(i: int):
            vectors = [
                functional.embedding(x, weight, sparse=True)
                for weight, x in zip(self.weights, flat[i], strict=True)
            ]
            return vectors if hotness == 1 else [v.view(bags, hotness, -1).sum(1) for v in vectors]

        return {"embedding": embedding}
