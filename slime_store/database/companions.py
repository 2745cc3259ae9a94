"""The files of an open SQLite store: the same log and shared memory all along.

SQLite finds a database's write-ahead log (``-wal``) and its index (``-shm``) by the database's name. When somebody
removes or replaces these files while the database is open, or under two names (see ``names``), its users no longer know
of each other, and what was committed is lost (https://sqlite.org/howtocorrupt.html, 2.4 to 2.7). So it is when the
database is moved without them, and a link to it left in its place. Each look costs a few microseconds.

A file that came from elsewhere may have brought such files with it. SQLite writes to what has their names, and deletes
what a rollback journal names (https://sqlite.org/fileformat.html, "super-journal name"), so they are looked at first.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
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
_MOST_LINKS = 40  # that Linux follows
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

    Costs five looks at names; a rollback journal, which only a crash leaves behind, is opened. Whoever only reads
    writes to the log's index, and to nothing else.

    Raises:
        DamagedStoreError: a file beside the database leads to another one, or names one.
        DatabaseError: it has a second name, under which it would be written to as well; or it lies beside a link to the
            database, as when that was moved away from it.
    """
    real = os.path.realpath(path)
    for link in _links(path):
        for suffix in (_JOURNAL, _LOG):
            if _size(f"{link}{suffix}"):
                raise DatabaseError(str(path), _left_behind(link, real, suffix))
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
        what = "then remove it: nothing is in it that is not made anew"
    else:
        what = (
            "if it is still there, what is in it belongs to the store: keep it, as a file of its own: "
            f"cp -p {name} t && mv t {name}"
        )
    second = "has a second name (a hard link), under which it would be written to as well"
    return f"{name} beside it {second}; close the store everywhere; {what}"


def _left_behind(link: str, real: str, suffix: str) -> str:
    name = os.path.basename(link) + suffix
    return (
        f"{name} lies beside the link {link}, where SQLite does not look for it; if the file was moved without it, it "
        f"holds what is the store's: close the store everywhere, then move it to {real}{suffix}, unless it is gone by "
        "then; if it is another store's, move it away"
    )


def _links(path: Path) -> Iterator[str]:
    """Yield the links that lead to a file one after the other, the last of them to the file itself."""
    name = os.path.abspath(path)
    with contextlib.suppress(OSError):  # it is no link, or none any more
        for _ in range(_MOST_LINKS):
            target = os.readlink(name)
            yield name
            name = os.path.join(os.path.dirname(name), target)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def check_place(path: Path, real: Path, display_url: str) -> None:
    """Make sure that a file is where it was when it was opened: the real one, whatever links lead to it.

    SQLite goes on to keep its log there, and the store its side files. A directory may have been moved with all that is
    in it, as long as its old name leads to it. Costs a look at each part of the path.

    Args:
        path: by which the file was opened, and is still to be found.
        real: where that led.
        display_url: for the error.

    Raises:
        DatabaseError: it is elsewhere.
    """
    name = os.path.realpath(path)
    if name == os.fspath(real):
        return
    now = Path(name)
    if now.name == real.name and identity(now.parent) == identity(real.parent):
        return
    raise DatabaseError(
        display_url,
        f"the file was moved to {now} while it was open, and what belongs to it was left at {real}; what is recorded "
        f"now would be lost. Close the store in every process, which saves what is in the log; if there is a directory "
        f"{real.name}-blobs, move it to {now}-blobs; then open the store again",
    )


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
