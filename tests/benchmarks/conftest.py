"""The benchmarks are scripts, not a package: their folder goes on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from tests.benchmarks.here import workers_here  # noqa: F401
