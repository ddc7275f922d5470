"""docs/keras.md names tests that exist, and all that are here."""

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_every_test_is_named_and_every_name_is_a_test():
    text = (ROOT / "docs" / "keras.md").read_text()
    named = {
        ROOT / name if "/" in name else HERE / name for name in re.findall(r"`([\w/]+\.py)`", text)
    }
    assert not [str(path) for path in named if not path.exists()]
    assert {path for path in HERE.glob("test_*.py") if path.name != Path(__file__).name} <= named
