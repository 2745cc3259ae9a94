"""SQLite: how connections are opened and set up.

Figures (2 cores, ext4, SQLite 3.40, WAL, synchronous=FULL, 64 MB of incompressible blobs in four commits; seconds to
write, and the size of the file):

| page size | 20 KB blobs | 100 KB | 300 KB | 1 MB | 200,000 narrow rows, 100 commits |
| --- | --- | --- | --- | --- | --- |
| 4096 | 0.25, 66 MB | 0.22, 64 MB | 0.21, 63 MB | 0.20, 61 MB | 0.25, 6.8 MB |
| 8192 | 0.20, 66 MB | 0.17, 64 MB | 0.18, 64 MB | 0.16, 61 MB | 0.25, 6.8 MB |
| 16384 | 0.16, 66 MB | 0.14, 64 MB | 0.14, 63 MB | 0.14, 61 MB | 0.25, 6.8 MB |
| 32768 | 0.22, 105 MB | 0.13, 66 MB | 0.12, 63 MB | 0.09, 62 MB | 0.25, 6.8 MB |
| 65536 | 0.14, 70 MB | 0.13, 84 MB | 0.13, 69 MB | 0.07, 62 MB | 0.26, 6.9 MB |

16 KiB is within 15 % of the best for packs of 100 KB and more, and the largest that wastes no space on small ones.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import StaticPool

from slime_store.config import StoreConfig
from slime_store.database.companions import check_companions, note_companions, refuse_others_files
from slime_store.database.engine import BEGIN_OPTION, BEGIN_WRITING
from slime_store.database.frozen import has_thawed, is_frozen, note_frozen
from slime_store.database.pool import KeptConnections
from slime_store.errors import StoreNotFoundError

PAGE_SIZE = 16384
"""Bytes; see the figures above."""

APPLICATION_ID = 0x534C5354
"""``SLST`` at offset 68 of the file: tells a store from the files of other programs."""

_JOURNAL_SIZE_LIMIT = 64 << 20  # bytes that a write-ahead log may keep after a checkpoint


class _Connection(sqlite3.Connection):
    """Lets go of its transaction when it is closed, whatever cursors are alive, in a traceback that somebody keeps.

    SQLite itself puts the end of a closed connection off until its last cursor is gone, and with it the end of its
    lock: after Ctrl-C all writers would wait for the next error of an interactive session.
    """

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.rollback()
        super().close()

    def __del__(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.rollback()
        with contextlib.suppress(sqlite3.Error):  # it was never opened
            super().close()


class _OnlyConnection(_Connection):
    """The connection of an in-memory store: closed with the last reference to it, for its data goes with it."""

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.rollback()


def create_sqlite_engine(config: StoreConfig, options: dict[str, Any]) -> Engine:
    """Return an engine for a file or an in-memory database."""
    path = config.path

    def connect() -> sqlite3.Connection:
        # `timeout` is SQLite's busy timeout: set before the first statement, so that no PRAGMA can fail on a lock
        connection = sqlite3.connect(
            ":memory:" if path is None else file_uri(path, read_only=config.read_only),
            timeout=config.busy_timeout,
            isolation_level=None,  # the driver never begins by itself: DDL would escape the transaction
            check_same_thread=False,  # the pool gives a connection to one thread at a time
            uri=path is not None,
            factory=_OnlyConnection if path is None else _Connection,
        )
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")  # what a schema calls must be harmless by SQLite's own list
        # FULL for the write-ahead log; for a rollback journal also its directory, or power loss undoes a commit
        connection.execute("PRAGMA synchronous = EXTRA")
        # on macOS fsync leaves the data in the drive's memory; elsewhere these do nothing
        connection.execute("PRAGMA fullfsync = ON")
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute(f"PRAGMA journal_size_limit = {_JOURNAL_SIZE_LIMIT}")
        return connection

    if path is None:
        engine = create_engine(
            config.sqlalchemy_url,
            creator=cache(connect),
            poolclass=StaticPool,
            execution_options=options,
            hide_parameters=True,
        )
    else:
        # Kept connections, not NullPool: closing the last one checkpoints the log, 10 times the cost of a small read.
        engine = create_engine(
            config.sqlalchemy_url,
            creator=connect,
            poolclass=KeptConnections,
            execution_options=options,
            hide_parameters=True,
        )
        if config.read_only:
            event.listen(engine, "connect", lambda _, record: note_frozen(path, record.info))
            event.listen(engine, "checkout", _drop_if_thawed)
    event.listen(engine, "begin", _begin)
    if path is not None and not config.read_only:
        real = Path(os.path.realpath(path))  # SQLite keeps its files beside the real one, not beside a link to it
        event.listen(engine, "begin", lambda connection: _check_writer(connection, real, config.display_url))
        event.listen(engine, "commit", lambda connection: _check_writer(connection, real, config.display_url))
    event.listen(engine, "handle_error", _keep_when_interrupted)
    return engine


def file_uri(path: Path, *, read_only: bool) -> str:
    """Return the URI of an existing database file, to be opened at once; opening it never creates the file.

    Raises:
        StoreNotFoundError: there is no such file.
        DamagedStoreError, DatabaseError: opening it would touch files that are not the database's.
    """
    if not path.exists():
        raise StoreNotFoundError(str(path))
    refuse_others_files(path, read_only=read_only)
    # with an empty authority: of a path with two slashes in front SQLite would take the first name for one
    uri = f"file://{quote(os.fsencode(path.absolute()))}?mode={'ro' if read_only else 'rw'}"
    return f"{uri}&immutable=1" if read_only and is_frozen(path) else uri


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(BEGIN_OPTION, "BEGIN"))


def _check_writer(connection: Connection, path: Path, display_url: str) -> None:
    note_companions(connection, path)
    if connection.get_execution_options().get(BEGIN_OPTION) == BEGIN_WRITING:
        check_companions(connection, path, display_url)


def _keep_when_interrupted(context: ExceptionContext) -> None:
    """Keep the connection when Ctrl-C or a signal handler's exception ends a statement: it can be rolled back.

    SQLAlchemy would close it. SQLite puts that off while a cursor lives, be it in a traceback that somebody keeps, and
    with it the end of the transaction: all writers would wait. An in-memory store would be gone.
    """
    if not isinstance(context.original_exception, Exception):
        context.is_disconnect = False


def _drop_if_thawed(connection: Any, record: Any, _proxy: Any) -> None:
    """Reopen a connection that was opened without locks once a writer is there, or has been."""
    if has_thawed(record.info):
        raise DisconnectionError
