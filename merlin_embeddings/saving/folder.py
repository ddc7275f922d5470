"""A folder of checkpoints of one training, called by their steps."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from merlin_embeddings.checkpoint import BrokenCheckpoint, Checkpoint

_NAME = re.compile(r"step-(\d{10,})")
# What a checkpoint goes on from that was written while training went on.
ROWS = ".rows"


class Folder:
    """Checkpoints by step.

    Args:
        path: of the folder; it needn't be there yet.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)

    def at(self, step: int) -> Path:
        """Where the checkpoint of a step is, or comes."""
        return self.path / f"step-{step:010d}"

    def steps(self) -> list[int]:
        """The steps that there are checkpoints of, in ascending order."""
        if not self.path.is_dir():
            return []
        found = (_NAME.fullmatch(one.name) for one in self.path.iterdir())
        steps = sorted(int(match.group(1)) for match in found if match)
        return [step for step in steps if (self.at(step) / "manifest.json").exists()]

    def newest(self) -> Path | None:
        """The latest checkpoint that can be opened, or None."""
        for step in reversed(self.steps()):
            try:
                return Checkpoint(self.at(step)).path
            except (BrokenCheckpoint, FileNotFoundError):
                continue
        return None

    def keep(self, count: int) -> None:
        """Removes all but the newest, and what these go on from.

        Args:
            count: how many stay.
        """
        if not self.path.is_dir():
            return
        steps, stay = self.steps(), set()
        for step in steps[-count:]:
            stay |= {one.path.name for one in Checkpoint(self.at(step)).chain}
        newest = steps[-1] if steps else 0
        for one in self.path.iterdir():
            match = _NAME.fullmatch(one.name.removesuffix(ROWS))
            if match and one.name not in stay and int(match.group(1)) <= newest:
                # Whatever happens next, it is no checkpoint any more.
                (one / "manifest.json").unlink(missing_ok=True)
                shutil.rmtree(one, ignore_errors=True)
