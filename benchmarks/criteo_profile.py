"""Where the time of training steps goes, from a trace of TensorFlow's profiler."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

# What the executor ran: "StatefulPartitionedCall/<scopes>/<op>:<type>".
_OP = re.compile(r"^StatefulPartitionedCall/(?P<name>.+):(?P<type>[\w>]+)$")
UPDATE_SCOPE = "update_of_tables"
EMBEDDINGS = "embeddings"  # the layer's name in every model
_GRADIENT_OPS = ("Merlin>Group", "Merlin>Values", "Merlin>Update")


def seconds_by_op(folder: Path) -> Counter:
    """Seconds of every op type in a trace: {(part, type): seconds}.

    A part is "embeddings" (lookups, their gradients, the updates of tables) or "rest". An op that
    splits its work over threads counts once; ops that run beside each other both count.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    result: Counter = Counter()
    for path in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace()
        space.ParseFromString(path.read_bytes())
        for plane in space.planes:
            for line in plane.lines:
                for event in line.events:
                    found = _OP.match(plane.event_metadata[event.metadata_id].name)
                    if found:
                        key = part(found["name"], found["type"]), found["type"]
                        result[key] += event.duration_ps * 1e-12
    return result


def part(name: str, kind: str) -> str:
    """Whose an op is.

    >>> part("gradient_tape/dlrm_1/embeddings_1/C1_1/Reshape", "Reshape")
    'embeddings'
    >>> part("dlrm_1/bottom_0_1/MatMul", "MatMul")
    'rest'
    """
    ours = UPDATE_SCOPE in name or kind in _GRADIENT_OPS
    scopes = name.split("/")
    return EMBEDDINGS if ours or any(s.startswith(EMBEDDINGS) for s in scopes) else "rest"


def share(seconds: Counter) -> float:
    """Part of the ops' time that embeddings take."""
    total = sum(seconds.values())
    return sum(s for (p, _), s in seconds.items() if p == EMBEDDINGS) / total if total else 0.0


def longest(seconds: Counter, count: int = 8) -> list[dict]:
    """The op types that take longest, as plain data."""
    total = sum(seconds.values())
    return [
        {"part": p, "op": kind, "percent": round(100 * s / total, 1)}
        for (p, kind), s in seconds.most_common(count)
    ]
