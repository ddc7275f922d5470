"""A folder of checkpoints of one training, called by their steps."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from merlin_embeddings.checkpoint import BrokenCheckpoint, Checkpoint

_NAME = re.compile(r"step-(\d{10,})")
_PARTIAL = re.compile(r"\.(.*)\.partial")
# What a checkpoint goes on from that was written while training went on.
ROWS = ".rows"


class Folder:
    """Checkpoints by step.

    Args:
        path: of the folder; it needn't be there yet.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path).absolute()  # wherever the process goes from here

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
        """Removes all but the newest, what these go on from, and what is later than any of them.

        What can't be opened doesn't count; what kills left half written goes, too.

        Args:
            count: how many stay.
        """
        if not self.path.is_dir():
            return
        whole, stay = [], set()
        for step in reversed(self.steps()):
            try:
                chain = Checkpoint(self.at(step)).chain
            except (BrokenCheckpoint, FileNotFoundError):
                continue
            stay |= {one.path.name for one in chain}
            whole.append(step)
            if len(whole) == count:
                break
        for one in self.path.iterdir() if whole else ():
            step_of = _NAME.fullmatch(_PARTIAL.sub(r"\1", one.name).removesuffix(ROWS))
            if step_of and one.name not in stay and int(step_of.group(1)) <= whole[0]:
                remove(one)


def remove(path: Path) -> None:
    """Removes a checkpoint, or what is left of one."""
    # Whatever happens next, it is no checkpoint any more.
    (path / "manifest.json").unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
