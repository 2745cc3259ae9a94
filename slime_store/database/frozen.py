"""Files that are read without locks, since this process can make no file beside them: until somebody writes to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_INFO = "slime_store_frozen"


def is_frozen(path: Path) -> bool:
    """Tell whether nobody writes to the file and this process can make no file beside it.

    Readers of a write-ahead log share memory through the file ``-shm``. Where that cannot be made (a read-only disk,
    somebody else's directory), a file without a log is read as it is, without locks.
    """
    path = Path(os.path.realpath(path))  # whose directory counts, not that of a link
    if os.access(path.parent, os.W_OK) or os.path.exists(f"{path}-shm") or os.path.exists(f"{path}-journal"):
        return False
    return not os.path.exists(f"{path}-wal") or os.path.getsize(f"{path}-wal") == 0


def note_frozen(path: Path, info: dict[str, Any]) -> None:
    """Note in the ``info`` of a new connection what the file was like, if it is read without locks."""
    info[_INFO] = (path, _frozen_state(path))


def has_thawed(info: dict[str, Any]) -> bool:
    """Tell whether a file that a connection reads without locks has met a writer since; ``info`` is its."""
    path, seen = info.get(_INFO, (None, None))
    return seen is not None and seen != _frozen_state(path)


def _frozen_state(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with the file's content, or None when the file is not frozen."""
    if not is_frozen(path):
        return None
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns
