"""The programs in pages of the docs."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def names_of(page: str) -> dict:
    """Runs all programs of a page, such as "docs/keras.md", in turn; the names that they define."""
    path, names = ROOT / page, {}
    for program in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
        exec(compile(program, str(path), "exec"), names)
    return names
