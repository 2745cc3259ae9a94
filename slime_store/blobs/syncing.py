"""Files and names that outlive a loss of power."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

TEMPORARY = ".tmp"

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, whose fsync leaves data in the drive's memory


def write_whole(path: Path, data: bytes, temporary: Path, *, is_shared: bool = False) -> None:
    """Write a file durably: it has its name when all of it is on disk, and another one until then.

    Where that fails nothing is left of it, but where ``is_shared``: others write a file of this name and content too,
    and one that is there may be theirs.
    """
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            sync_file(file.fileno())
        os.rename(temporary, path)
        sync_directory(path.parent)
    except BaseException:
        for left_over in (temporary,) if is_shared else (temporary, path):
            with contextlib.suppress(OSError):
                left_over.unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Make the entries of a directory outlive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def sync_file(descriptor: int) -> None:
    """Make the content of an open file outlive a loss of power."""
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
        except OSError:  # a file system that has only the other
            pass
    os.fsync(descriptor)
