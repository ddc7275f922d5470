"""The README's program runs as it stands."""

import re
from pathlib import Path


def test_program():
    readme = Path(__file__).parents[1] / "README.md"
    [program] = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    names = {}
    exec(compile(program, str(readme), "exec"), names)
    assert names["model"].count_params() == 10_000 * 16 + 32 + 1
