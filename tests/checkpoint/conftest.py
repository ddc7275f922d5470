"""Where tests of checkpoints write."""

import tempfile
from pathlib import Path

import pytest

# In memory where that can be had: most tests ask what is written, not how soon it is on a disk.
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None


@pytest.fixture
def tmp_path():
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        yield Path(folder)
