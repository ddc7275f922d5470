"""A checkpoint whose rows are written while training goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from merlin_embeddings import checkpoint
from merlin_embeddings.saving import tracking
from merlin_embeddings.saving.folder import ROWS, remove
from merlin_embeddings.saving.parts import TablePart, parts_of
from merlin_embeddings.saving.rows import Rows, spans
from merlin_embeddings.saving.save import Saved, save, step_of
from merlin_embeddings.saving.write import known_by_shard, table_info
from merlin_embeddings.tables import Entries, MovingTable

# Rows are read under their table's lock, which a step waits for: so many bytes at a time.
_AT_ONCE = 1 << 19


class BackgroundSave:
    """Writes rows in a thread, whatever step they are of; then, between two steps, what changed.

    A row that a step writes meanwhile is marked, as for increments, so that the rows of the last
    moment are known: with the rest of the model they make the checkpoint, which is of that moment
    altogether. Nothing is copied beside. The steps wait while tables are marked at the beginning (a
    pass over one byte a row, and the ids of tables whose rows move) and while the rows that changed
    are written at the end.

    The checkpoint is an increment on `<path>.rows`, a folder beside it.

    Args:
        model: a Keras model whose tables are trained by an optimizer of this package. Another one's
            writes aren't seen: then all rows are written at the end, and the step waits.
        path: of the checkpoint, as `finish` may change it.
        share: of the time, the most that the thread works; it sleeps for the rest.
    """

    def __init__(self, model: Any, path: str | os.PathLike, share: float = 0.1) -> None:
        self.path, self._model, self._share = Path(path).absolute(), model, share
        self._rows_path = self.path.with_name(self.path.name + ROWS)
        self._parts = parts_of(model)
        optimizer = getattr(model, "optimizer", None)
        tracking.watch(self._parts, optimizer)
        self._step = step_of(optimizer)
        self._marks = tracking.marks_of(self._parts)
        self._known = {
            name: known_by_shard(part.table)
            for name, part in self._parts.tables.items()
            if isinstance(part.table, MovingTable)
        }
        self._error: BaseException | None = None
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """Whether all rows are written, or can't be: `finish` won't wait for them."""
        return not self._thread.is_alive()

    def finish(
        self,
        path: str | os.PathLike | None = None,
        metadata: Mapping[str, Any] | None = None,
        epoch: int = 0,
        batch: int = 0,
        overwrite: bool = False,
    ) -> Saved:
        """Writes what changed since, and all that isn't rows. Between two steps.

        Where it can't, it leaves nothing.

        Args:
            path: another one than was planned, in the same folder.
            metadata, epoch, batch, overwrite: see `save`.

        Raises:
            OSError: the disk is full, or fails; whatever else the thread met.
        """
        try:
            return self._finish(path, metadata, epoch, batch, overwrite)
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Stops, and leaves no checkpoint."""
        self._given_up = True
        self._thread.join()
        if self._error is None:
            remove(self._rows_path)

    def _finish(
        self,
        path: str | os.PathLike | None,
        metadata: Mapping[str, Any] | None,
        epoch: int,
        batch: int,
        overwrite: bool,
    ) -> Saved:
        self._share = 1.0
        self._thread.join()
        if self._error is not None:
            raise self._error
        rows = checkpoint.Checkpoint(self._rows_path)
        tracking.remember(self._parts, self._marks, rows.id)
        return save(
            self._model,
            self.path if path is None else path,
            base=rows.path,
            metadata=metadata,
            epoch=epoch,
            batch=batch,
            overwrite=overwrite,
        )

    def _run(self) -> None:
        try:
            with checkpoint.Writer(self._rows_path, overwrite=True) as writer:
                for part in self._parts.tables.values():
                    self._write(writer, part)
            checkpoint.commit(
                self._rows_path, step=self._step, metadata={"unfinished": True}, overwrite=True
            )
        except BaseException as error:
            self._error = error

    def _write(self, writer: checkpoint.Writer, part: TablePart) -> None:
        info, rows = table_info(part), Rows(part, live=True)
        chunk = max(1, _AT_ONCE // (4 * info.dim * (1 + len(info.slots))))
        known = self._known.get(part.name)
        if known is None:
            count = part.table.rows
            entries = (rows.span(begin, end) for begin, end in spans(0, count, chunk))
            writer.table(info, self._throttled(entries), count, keys=range(count))
        else:
            some = (
                rows.some(one.rows[a:b], one.ids[a:b], one.scores[a:b].astype(np.uint32))
                for one in known
                for a, b in spans(0, len(one.ids), chunk)
            )
            counts = [len(one.ids) for one in known]
            shards = (0, len(known))
            writer.table(info, self._throttled(some), counts, virtual_shards=shards)

    def _throttled(self, entries: Iterator[Entries]) -> Iterator[Entries]:
        """Sleeps as long as it has to for its share of the time; what the writer does counts."""
        began = time.monotonic()
        for one in entries:
            yield one
            if self._given_up:
                raise InterruptedError(f"{self.path} was given up")
            time.sleep((time.monotonic() - began) * (1 / self._share - 1))
            began = time.monotonic()
