"""The programs of docs/from-merlin-models.md, run once for all tests of what they made.

NVTabular keeps relative paths of categories: whoever uses the workflow does so in FOLDER.
"""

import contextlib
import functools
import re
import tempfile
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "from-merlin-models.md"
_folder = tempfile.TemporaryDirectory()
FOLDER = Path(_folder.name)


@functools.cache
def names():
    """The names that the programs define; their files are in FOLDER."""
    names = {}
    with contextlib.chdir(FOLDER):
        for program in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            exec(compile(program, str(PAGE), "exec"), names)
    return names
