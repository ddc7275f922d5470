"""Scripts in a process of their own: for what must be set before TensorFlow starts."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import merlin_embeddings


def last_line_of(script: str):
    """Runs a script that finds the package, and reads the last line it prints as JSON."""
    checkout = str(Path(merlin_embeddings.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,  # one that takes seconds alone takes minutes on a busy machine
        env={**os.environ, "PYTHONPATH": checkout},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
