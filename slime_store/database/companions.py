"""The files of an open SQLite store: the same log and shared memory all along.

SQLite finds a database's write-ahead log (``-wal``) and its index (``-shm``) by the database's name. When somebody
removes or replaces these files while the database is open, or under two names (see ``names``), its users no longer know
of each other, and what was committed is lost (https://sqlite.org/howtocorrupt.html, 2.4 to 2.7). Each look costs a few
microseconds.

A file that came from elsewhere may have brought such files with it. SQLite writes to what has their names, and deletes
what a rollback journal names (https://sqlite.org/fileformat.html, "super-journal name"), so they are looked at first.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import Connection

from slime_store.blobs.held import tail_of
from slime_store.errors import DamagedStoreError, DatabaseError

Identity: TypeAlias = "tuple[int, int] | None"

_INFO = "slime_store_companions"
_LOG, _INDEX = "-wal", "-shm"
_SUFFIXES = (_LOG, _INDEX)
_JOURNAL = "-journal"
_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
"""Ends a rollback journal behind the name of a super-journal, which a transaction over several databases has."""


def identity(path: str | os.PathLike[str]) -> Identity:
    """Return what stays the same as long as a file is the same one, or None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def refuse_others_files(path: Path, *, read_only: bool = False) -> None:
    """Make sure that SQLite touches nothing else when it opens a database: to be called right before it does.

    Costs four looks at names; a rollback journal, which only a crash leaves behind, is opened. Whoever only reads
    writes to the log's index, and to nothing else.

    Raises:
        DamagedStoreError: a file beside the database leads to another one, or names one.
        DatabaseError: it has a second name, under which it would be written to as well.
    """
    real = os.path.realpath(path)
    for suffix in (_JOURNAL, *_SUFFIXES):
        name = os.path.basename(real) + suffix
        try:
            status = os.lstat(f"{real}{suffix}")
            if not stat.S_ISREG(status.st_mode):
                detail = f"{name} beside it is no file of its own but a link, or no regular file at all; remove it"
                raise DamagedStoreError(str(path), detail)
            if status.st_nlink > 1 and not (read_only and suffix == _LOG):
                raise DatabaseError(str(path), _of_two_names(name, suffix))
            if suffix == _JOURNAL and tail_of(f"{real}{suffix}", len(_MAGIC)) == _MAGIC:
                detail = (
                    f"{name} beside it names another file, which SQLite would delete, and no journal of slime_store "
                    "does that; remove it, or let the program that made it open the file once"
                )
                raise DamagedStoreError(str(path), detail)
        except OSError:
            continue  # it is not there, or cannot be read by SQLite either


def _of_two_names(name: str, suffix: str) -> str:
    if suffix == _INDEX:
        what = "close the store everywhere and remove it: nothing is in it that is not made anew"
    else:
        what = f"what is in it belongs to the store: keep it, as a file of its own: cp -p {name} t && mv t {name}"
    return f"{name} beside it has a second name (a hard link), under which it would be written to as well; {what}"


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
