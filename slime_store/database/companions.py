"""The files of an open SQLite store: the same log and shared memory all along.

SQLite finds a database's write-ahead log (``-wal``) and its index (``-shm``) by the database's name. When somebody
removes or replaces these files while the database is open, or under two names (see ``names``), its users no longer know
of each other, and what was committed is lost (https://sqlite.org/howtocorrupt.html, 2.4 to 2.7). Each look costs a few
microseconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import Connection

from slime_store.errors import DatabaseError

Identity: TypeAlias = "tuple[int, int] | None"

_INFO = "slime_store_companions"
_SUFFIXES = ("-wal", "-shm")


def identity(path: str | os.PathLike[str]) -> Identity:
    """Return what stays the same as long as a file is the same one, or None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def note_companions(connection: Connection, path: Path) -> None:
    """Note in a connection's first transaction which log and index it has opened: those that are there then."""
    if _INFO not in connection.info:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.execute("PRAGMA schema_version").fetchone()  # the first look into the file opens them, or makes them
        connection.info[_INFO] = {suffix: identity(f"{path}{suffix}") for suffix in _SUFFIXES}


def check_companions(connection: Connection, path: Path, display_url: str) -> None:
    """Make sure that the log and its index are those that were noted; to be called inside a transaction.

    Where there were none, the file had a rollback journal; it has them when another user gave it a log.

    Raises:
        DatabaseError: they are not.
    """
    seen: dict[str, Identity] = connection.info[_INFO]
    for suffix in _SUFFIXES:
        now, before = identity(f"{path}{suffix}"), seen[suffix]
        if before is None:
            seen[suffix] = now
        elif now != before:
            raise DatabaseError(
                display_url,
                f"{path.name}{suffix} was removed or replaced while the store was open; what is recorded now would be "
                "lost. Close the store in every process, which saves what is in the log, then open it again",
            )
