"""Rows in a file, read where they lie: what is read is checked against the file's length first."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

# Keys looked through at a time.
_KEYS = 1 << 16


class Column:
    """N rows of one shape in a file, at equal distances.

    Args:
        path: of the file.
        offset: of the first row, in bytes.
        rows: N.
        dtype: of an element, or of a whole record.
        shape: of a row.
        stride: bytes from one row to the next; None: they touch.
        field: which field of a record a row is; None: all of it.

    Raises:
        ValueError: the file is shorter than that.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        offset: int,
        rows: int,
        dtype: np.dtype,
        shape: tuple[int, ...] = (),
        field: str | None = None,
    ) -> None:
        self.path, self.offset, self.rows = os.fspath(path), offset, rows
        self._dtype, self._shape, self._field = np.dtype(dtype), shape, field
        self._width = self._dtype.itemsize * int(np.prod(shape, dtype=object))
        ends, size = offset + rows * self._width, os.path.getsize(self.path)
        if offset < 0 or rows < 0 or ends > size:
            raise ValueError(
                f"{self.path}: {rows} rows of {self._width} bytes from byte {offset} on would end "
                f"at byte {ends}, but the file has {size} bytes: it is damaged or was cut short"
            )

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop)."""
        wanted = (stop - start) * self._width
        buffer = np.empty(wanted, np.uint8)
        view, done = memoryview(buffer.data), 0
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + start * self._width)
            while done < wanted:
                got = file.readinto(view[done:])
                if not got:
                    raise ValueError(f"{self.path}: was cut short while it was read")
                done += got
        rows = buffer.view(self._dtype).reshape(stop - start, *self._shape)
        return rows if self._field is None else rows[self._field]

    def take(self, places: np.ndarray) -> np.ndarray:
        """Rows by their places, in any order; places that follow each other are read together."""
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        cuts = np.flatnonzero(np.diff(ordered) != 1) + 1
        parts = [
            self.read(int(run[0]), int(run[-1]) + 1) for run in np.split(ordered, cuts) if len(run)
        ]
        found = np.concatenate(parts)
        result = np.empty_like(found)
        result[order] = found
        return result


def by_key(
    keys: Column, columns: Mapping[str, Column], chunk: int
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Keys with what stands in other columns beside them, in ascending order of keys.

    Where the file isn't in that order, the keys and their order are held: 16 bytes a row, 24 while
    they are sorted.

    Raises:
        ValueError: a key that stands twice, or is no int64.
    """
    if _ascending(keys):
        for start in range(0, keys.rows, chunk):
            stop = min(start + chunk, keys.rows)
            yield (
                _int64(keys.read(start, stop), keys.path),
                {name: column.read(start, stop) for name, column in columns.items()},
            )
        return
    every = np.empty(keys.rows, np.int64)
    for start in range(0, keys.rows, _KEYS):
        stop = min(start + _KEYS, keys.rows)
        every[start:stop] = _int64(keys.read(start, stop), keys.path)
    order = np.argsort(every, kind="stable")
    every = every[order]
    require_unique(every, keys.path)
    for start in range(0, keys.rows, chunk):
        places = order[start : start + chunk]
        found = {name: column.take(places) for name, column in columns.items()}
        yield every[start : start + chunk], found


def require_unique(ordered: np.ndarray, path: str) -> None:
    """Raises ValueError if a key stands twice in keys that are in order."""
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if twice.size:
        raise ValueError(f"{path}: key {ordered[twice[0]]} stands more than once")


def is_every_row(keys: Column) -> bool:
    """Whether the keys are 0, 1, ... N-1, in any order, as far as their ends and number tell."""
    low, high = None, None
    for start in range(0, keys.rows, _KEYS):
        some = keys.read(start, min(start + _KEYS, keys.rows))
        low = int(some.min()) if low is None else min(low, int(some.min()))
        high = int(some.max()) if high is None else max(high, int(some.max()))
    return low == 0 and high == keys.rows - 1


def _ascending(keys: Column) -> bool:
    last = None
    for start in range(0, keys.rows, _KEYS):
        some = keys.read(start, min(start + _KEYS, keys.rows))
        if (some[1:] <= some[:-1]).any() or (last is not None and some[0] <= last):
            return False
        last = some[-1]
    return True


def _int64(keys: np.ndarray, path: str) -> np.ndarray:
    result = keys.astype(np.int64)
    if keys.dtype.kind == "u" and (result < 0).any():
        raise ValueError(f"{path}: key {keys.max()} is no int64")
    return result


def file_size(path: str | os.PathLike) -> int:
    """Of a file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is something else than a file.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"{os.fspath(path)}: no such file")
    if not Path(path).is_file():
        raise ValueError(f"{os.fspath(path)}: is no file")
    return os.path.getsize(path)
