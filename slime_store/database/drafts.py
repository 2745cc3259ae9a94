"""Files that are made under a name of their own and get the right one when they are finished, if nobody has it yet.

A link does that at once. Where a file system has none (FAT, exFAT, SMB, some FUSE), there is only a rename, which
replaces: so those who would rename look whether the name is free while they hold a lock. SQLite needs a file system's
locks as well. One lock for a directory, not for a name, which may have several spellings there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

LOCK_NAME = ".slime_store.lock"

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
"""What `link` says where there are none, by file system."""

_PREFIX, _SUFFIX = ".slime_store-", ".new"


def draft_of(path: Path) -> Path:
    """Return a name, never used before, under which to make a file that is then given its own."""
    return path.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")


def is_draft(name: str) -> bool:
    """Tell whether a file is named as a draft is."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def publish(draft: Path, path: Path) -> None:
    """Give a finished draft its name in the same directory; the draft may remain as a second name, to be removed.

    Of any number of processes that do this at once, the first one wins.

    Raises:
        FileExistsError: somebody has the name, be it by a link that leads nowhere; it stays as it is.
        OSError: the name cannot be given.
    """
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with _locked(path.parent):
            if os.path.lexists(path):
                raise FileExistsError(path) from None
            os.rename(draft, path)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock. Its file goes afterwards; one that is left over locks out nobody who may read it."""
    path = directory / LOCK_NAME
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDONLY, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if not _is_still(path, descriptor):
                continue  # the one who had the lock has removed its file
            try:
                yield
                return
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(path)
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for a child that was forked meanwhile
            os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
