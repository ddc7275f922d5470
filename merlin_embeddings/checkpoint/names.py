"""Names of tables as names of folders, and paths that stay inside of a folder."""

from __future__ import annotations

from urllib.parse import quote

import xxhash

from merlin_embeddings.checkpoint.errors import BrokenCheckpoint

_LONGEST = 120


def folder_name(name: str) -> str:
    """A table's folder: letters, digits and `_.-~` stand for themselves, the rest as %XX.

    >>> folder_name("user/item é"), folder_name("..")
    ('user%2Fitem%20%C3%A9', '%2E.')
    """
    encoded = quote(name, safe="")
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) <= _LONGEST:
        return encoded
    return f"{encoded[:_LONGEST]}~{xxhash.xxh3_64_hexdigest(name.encode())}"


def is_path(path: str) -> bool:
    """Whether the system can have a file of this name."""
    try:
        return b"\0" not in path.encode()
    except UnicodeEncodeError:
        return False


def check_inside(path: str, what: str) -> str:
    """`path`, if it leads from a folder to a file in it.

    Raises:
        BrokenCheckpoint: it is absolute, or leads out of the folder.
    """
    parts = path.split("/")
    climbs = any(part in ("", ".", "..") for part in parts)
    if climbs or "\\" in path or not is_path(path):
        raise BrokenCheckpoint(f"{what}: the file {path[:80]!r} isn't inside of the checkpoint")
    return path
