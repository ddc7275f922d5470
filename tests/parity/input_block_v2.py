"""What merlin-models' InputBlockV2 makes of the cases; runs in the merlin lane.

    .venv-merlin/bin/python -m tests.parity.input_block_v2 results.npz

Entries of the file are "case/what/name", where what is "output", "loss", "gradient" (of a weight or
an input) or "shape" (of a weight).
"""

import sys

import merlin.models.tf as mm
import numpy as np
import tensorflow as tf
from merlin.models.tf.transforms.features import PrepareFeatures
from merlin.schema import Tags

from tests.parity import cases


def run(case: cases.Case) -> dict[str, np.ndarray]:
    """The case's results by "what/name"."""
    schema = cases.schema(case)
    inputs = PrepareFeatures(schema)({k: tf.constant(v) for k, v in cases.batch(case).items()})
    inputs = {name: x for name, x in inputs.items() if name in case.columns}
    block, dense = _block(case, schema)
    block(inputs)
    weights = {}
    if "categorical" in block.parallel_layers:
        for name, layer in block["categorical"].parallel_layers.items():
            weights[name] = layer.table.embeddings
    if dense:
        weights |= {"kernel": dense.kernel, "bias": dense.bias}
    for name, weight in weights.items():
        weight.assign(cases.values(name, tuple(weight.shape)))
    with tf.GradientTape() as tape:
        numbers = {n: x for n, x in inputs.items() if n in (*cases.NUMBERS, *cases.VECTORS)}
        tape.watch(numbers)
        outputs = block(inputs)
        outputs = outputs if isinstance(outputs, dict) else {"all": outputs}
        losses = list(block.losses)
        total = tf.add_n([_weighed(n, x) for n, x in outputs.items()] + losses)
    gradients = tape.gradient(total, {**weights, **numbers})
    return {
        **{f"output/{name}": _flat(x).numpy() for name, x in outputs.items()},
        "loss/": np.array(sum(float(loss) for loss in losses)),
        **{f"gradient/{n}": tf.convert_to_tensor(g).numpy() for n, g in gradients.items()},
        **{f"shape/{name}": np.array(weight.shape) for name, weight in weights.items()},
    }


def _block(case: cases.Case, schema):
    dense = tf.keras.layers.Dense(case.projection) if case.projection else None
    categorical = schema.select_by_tag(Tags.CATEGORICAL)
    continuous = schema.select_by_tag(Tags.CONTINUOUS)
    branches = {}
    if len(categorical):
        branches["categorical"] = mm.Embeddings(
            categorical,
            dim=case.dim,
            sequence_combiner=case.combiner,
            l2_batch_regularization_factor=case.l2,
        )
    if dense:
        branches["continuous"] = mm.ContinuousProjection(continuous, dense)
    return mm.InputBlockV2(schema, aggregation=case.aggregation, **branches), dense


def _flat(tensor):
    return getattr(tensor, "flat_values", tensor)


def _weighed(name: str, tensor):
    tensor = _flat(tensor)
    return tf.reduce_sum(tensor * cases.values(f"cotangent {name}", tuple(tensor.shape)))


def main(path: str) -> None:
    results = {
        f"{name}/{key}": value
        for name, case in cases.CASES.items()
        for key, value in run(case).items()
    }
    np.savez(path, **results)


if __name__ == "__main__":
    main(sys.argv[1])
