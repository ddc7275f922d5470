"""What tests of the merlin lane share."""

import contextlib
import glob
import sys
from pathlib import Path

import pytest
import tensorflow as tf

# The examples' modules import each other as neighbours.
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


def _types_in(run_metadata):
    """The types of all ops in the graphs that ran, as TensorFlow ran them: after its optimisers."""
    graphs = [*run_metadata.partition_graphs]
    for function in run_metadata.function_graphs:
        graphs += function.partition_graphs
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [
        n for graph in graphs for function in graph.library.function for n in function.node_def
    ]
    return {node.op for node in nodes}


@pytest.fixture(scope="session")
def executed_ops(tmp_path_factory):
    """A context manager that gives a set; after its block it has the types of the ops that ran.

    Nested functions count too, and what ran more than once is there once.

        with executed_ops() as ops:
            model.fit(...)
        assert {"Merlin>Lookup", "Merlin>Update"} <= ops
    """

    @contextlib.contextmanager
    def watch():
        folder = str(tmp_path_factory.mktemp("executed"))
        types = set()
        # TensorFlow goes on recording after a trace; what ran since the last one isn't asked for.
        with tf.summary.create_file_writer(f"{folder}_before").as_default():
            tf.summary.trace_on(graph=True)
            tf.summary.trace_export("before", step=0)
        with tf.summary.create_file_writer(folder).as_default():
            tf.summary.trace_on(graph=True)
            yield types
            tf.summary.trace_export("executed", step=0)
        [file] = glob.glob(f"{folder}/*")
        for record in tf.data.TFRecordDataset(file):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                run = tf.compat.v1.RunMetadata.FromString(value.tensor.string_val[0])
                types |= _types_in(run)

    return watch
