"""What has to reach the disk, and in which order."""

from __future__ import annotations

import ctypes
import errno
import fcntl
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


def lock(path: Path) -> int | None:
    """Takes a lock, which it has until the descriptor is closed; None: another one has it.

    Args:
        path: of the file that is locked; it is made with the folders that it is in.
    """
    while True:
        make_folder(path.parent)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:  # whoever had the folder has just given it its name
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the lock of a file that isn't there any more


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


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
    require_free(path, overwrite)
    if not path.exists():
        _rename_new(new, path)
    elif not _renameat2(new, path, _EXCHANGE):
        shutil.rmtree(aside(path), ignore_errors=True)
        os.rename(path, aside(path))
        os.rename(new, path)
    sync_folder(path.parent)
    for old in (new, aside(path)):
        shutil.rmtree(old, ignore_errors=True)


def require_free(path: Path, overwrite: bool) -> None:
    """Checks that a checkpoint may have a name.

    Raises:
        FileExistsError: something has it that isn't to be replaced: with `overwrite`, anything but
            a checkpoint, or what is left of one.
    """
    if path.is_symlink():
        raise _taken(path, "this is a link; save to where it leads, or under another name")
    if not path.exists():
        return
    if not overwrite:
        raise _exists(path)
    if not path.is_dir() or not all(map(_in_checkpoints, path.iterdir())):
        raise _taken(
            path,
            "there is something of this name that isn't a checkpoint, and overwrite=True replaces "
            "nothing else; save under another one",
        )


def _in_checkpoints(path: Path) -> bool:
    """Whether checkpoints have something of this name at their top."""
    return path.name in ("manifest.json", "tables") or path.suffix == ".safetensors"


def _exists(path: Path) -> FileExistsError:
    what = "there is something of this name; save under another one, or with overwrite=True"
    return _taken(path, what)


def _taken(path: Path, what: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, what, str(path))


def _rename_new(new: Path, path: Path) -> None:
    try:
        if not _renameat2(new, path, _NOREPLACE):
            os.rename(new, path)
    except FileExistsError:
        raise _exists(path) from None


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
