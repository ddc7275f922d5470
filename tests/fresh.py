"""Scripts in a process of their own: for what must be set before TensorFlow starts."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import merlin_embeddings


def output_of(script: str, *arguments: str | Path) -> str:
    """What a script prints that finds the package which this process has."""
    package = str(Path(merlin_embeddings.__file__).parents[1])
    done = subprocess.run(
        # -P: not the package of the folder where it runs, whose library may be for another
        # TensorFlow.
        [sys.executable, "-P", "-c", textwrap.dedent(script), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=500,  # one that takes seconds alone takes minutes on a busy machine
        env={**os.environ, "PYTHONPATH": package},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def last_line_of(script: str):
    """The last line that a script prints, read as JSON."""
    return json.loads(output_of(script).splitlines()[-1])
