"""The files of an open SQLite store: one name, and the same log and shared memory all along.

SQLite finds a database's write-ahead log (``-wal``) and its index (``-shm``) by the database's name. Under two names,
or when somebody removes or replaces these files while the database is open, its users no longer know of each other,
and what was committed is lost (https://sqlite.org/howtocorrupt.html, 2.4 to 2.7). Each look costs a few microseconds.
"""

from __future__ import annotations

import os
import time
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


def check_only_name(path: Path, display_url: str) -> None:
    """Make sure that no hard link gives the file a second name.

    Raises:
        DatabaseError: one does.
    """
    path = Path(os.path.realpath(path))
    for _ in range(5):
        try:
            n_names = os.stat(path).st_nlink
            if n_names < 2:
                return
            n_drafts = sum(identity(draft) == identity(path) for draft in path.parent.glob(".slime_store-*.new"))
        except OSError:
            return  # whoever opens the file says what is wrong
        if n_names - n_drafts < 2:
            return
        time.sleep(0.01)  # the draft may have gone between the two looks
    raise DatabaseError(
        display_url,
        "the file has a second name (a hard link), and SQLite would keep a log for each; remove the link, or copy the "
        "file",
    )
