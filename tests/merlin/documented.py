"""The programs of docs/from-merlin-models.md, run once for all tests of what they made.

NVTabular keeps relative paths of categories: whoever uses the workflow does so in FOLDER.
"""

import contextlib
import functools
import tempfile
from pathlib import Path

from tests.documented import names_of

_folder = tempfile.TemporaryDirectory()
FOLDER = Path(_folder.name)


@functools.cache
def names():
    """The names that the programs define; their files are in FOLDER."""
    with contextlib.chdir(FOLDER):
        return names_of("docs/from-merlin-models.md")
