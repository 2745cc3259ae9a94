"""Files that this process has open already, which may be a store's.

Whoever closes a file drops all locks that the process holds on it, through whatever descriptor it took them: SQLite's
too, and then another process that closes the store takes itself for the last one and deletes the log beneath this one.
So what may be a database file, its log or its shared memory is never opened here when it is open already; its first
bytes are read through the descriptor that is there.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

SQLITE_HEADER = b"SQLite format 3\0"
_PARTS = (
    SQLITE_HEADER,
    b"\x37\x7f\x06\x82",  # the write-ahead log
    b"\x37\x7f\x06\x83",
    (3007000).to_bytes(4, "little"),  # its shared memory
    (3007000).to_bytes(4, "big"),
    b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7",  # the rollback journal
)
_DESCRIPTORS = "/dev/fd"


def head_of(path: str | os.PathLike[str], size: int) -> bytes:
    """Return the first bytes of a regular file; OSError where it cannot be read."""
    for head in held_heads(path, size):
        return head
    with open(path, "rb") as file:
        return file.read(size)


def tail_of(path: str | os.PathLike[str], size: int) -> bytes:
    """Return the last bytes of a regular file, or all of a shorter one; OSError where it cannot be read."""
    for descriptor in _descriptors_of(path):
        with contextlib.suppress(OSError):
            return _tail(descriptor, size)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return _tail(descriptor, size)
    finally:
        os.close(descriptor)


def is_held(path: str | os.PathLike[str]) -> bool:
    """Return whether a path leads to a file of a database that this process has open."""
    return any(head.startswith(_PARTS) for head in held_heads(path, len(SQLITE_HEADER)))


def leads_to_database(path: str | os.PathLike[str]) -> bool:
    """Return whether a name leads to a file of an open database, whose locks would be gone if it was closed here."""
    status = os.lstat(path)
    return (stat.S_ISLNK(status.st_mode) or status.st_nlink > 1) and is_held(path)


def held_heads(path: str | os.PathLike[str], size: int) -> Iterator[bytes]:
    """Yield the first bytes of a file as each descriptor that is open on it reads them."""
    for descriptor in _descriptors_of(path):
        with contextlib.suppress(OSError):  # closed meanwhile, or open for writing only
            yield os.pread(descriptor, size, 0)


def _descriptors_of(path: str | os.PathLike[str]) -> Iterator[int]:
    try:
        status = os.stat(path)
        descriptors = [int(name) for name in os.listdir(_DESCRIPTORS)]
    except OSError:
        return
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.path.samestat(os.fstat(descriptor), status):
                yield descriptor


def _tail(descriptor: int, size: int) -> bytes:
    return os.pread(descriptor, size, max(0, os.fstat(descriptor).st_size - size))
