"""What has to reach the disk, and in which order."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path
from typing import Any

_AT_FDCWD = -100
_NOREPLACE, _EXCHANGE = 1, 2
# The kernel or the file system doesn't know the flags.
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def _libc_rename() -> Any:
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return None
    path = ctypes.c_char_p
    call.argtypes = (ctypes.c_int, path, ctypes.c_int, path, ctypes.c_uint)
    return call


_rename = _libc_rename()


def partial(path: Path) -> Path:
    """Where a checkpoint is written before it is whole."""
    return path.with_name(f".{path.name}.partial")


def aside(path: Path) -> Path:
    """Where a checkpoint stands while another takes its place, if that takes two renames."""
    return path.with_name(f".{path.name}.replaced")


def present(path: Path) -> Path:
    """Where the checkpoint of this name is: not at `path` if a kill came between two renames."""
    if not path.exists() and (aside(path) / "manifest.json").exists():
        return aside(path)
    return path


def make_folder(path: Path) -> None:
    """Makes a folder, and those that it is in; their names have reached the disk then."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Has the names in a folder reach the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Writes a new file that has reached the disk when this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, content, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes | memoryview, offset: int) -> None:
    """Writes all of it at an offset."""
    view = memoryview(content)
    while len(view):
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def move_in(new: Path, path: Path, overwrite: bool) -> None:
    """Gives a whole checkpoint its name; until then, `path` is what it was.

    Args:
        new: the checkpoint, on the same file system.
        path: its name.
        overwrite: whether what has that name is replaced, and removed then.

    Raises:
        FileExistsError: something has it, and isn't to be replaced.
    """
    if not path.exists() and not path.is_symlink():
        _rename_new(new, path)
    elif not overwrite:
        raise exists(path)
    elif not _renameat2(new, path, _EXCHANGE):
        shutil.rmtree(aside(path), ignore_errors=True)
        os.rename(path, aside(path))
        os.rename(new, path)
    sync_folder(path.parent)
    for old in (new, aside(path)):
        shutil.rmtree(old, ignore_errors=True)


def exists(path: Path) -> FileExistsError:
    """What says that a name is taken."""
    return FileExistsError(
        errno.EEXIST,
        "there is something of this name; save under another one, or with overwrite=True",
        str(path),
    )


def _rename_new(new: Path, path: Path) -> None:
    try:
        if not _renameat2(new, path, _NOREPLACE):
            os.rename(new, path)
    except FileExistsError:
        raise exists(path) from None


def _renameat2(old: Path, new: Path, flags: int) -> bool:
    """Renames with flags of Linux's; False where there are none."""
    if _rename is None:
        return False
    if _rename(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), str(new))
