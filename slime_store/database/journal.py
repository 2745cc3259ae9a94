"""The journal mode of a store that lies on a network file system.

A write-ahead log needs memory that all users of the file share, so they must be on one machine. New stores get one
only on local file systems, but a file can be moved. On a local file system the mode is the user's to choose.
"""

from __future__ import annotations

import contextlib
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from slime_store.database import filesystem
from slime_store.database.engine import engine_config
from slime_store.database.forks import guarded_transaction
from slime_store.database.sqlite import file_uri
from slime_store.database.transactions import read


def settle_journal(engine: Engine) -> None:
    """Take a store that was opened for writing on a network file system out of write-ahead-log mode, and warn.

    Only while nobody else has it open can that be done; the warning says which mode it is in. To be called before the
    engine is shared: its idle connections are closed.
    """
    config = engine_config(engine)
    if config.path is None:
        return
    if not config.read_only:
        filesystem.warn_if_mounted_alone(config.path)
    kind = filesystem.filesystem_type(config.path)
    if not filesystem.is_network(kind):
        return
    if not config.read_only and _mode(engine) == "wal":
        engine.dispose()
        _leave_write_ahead_log(config.path)
    filesystem.warn_of_network(config.path, kind, _mode(engine))


def truncate_log(engine: Engine) -> bool:
    """Write the whole write-ahead log into the file and cut it to nothing; waits for nobody. Tells whether it could.

    SQLite itself writes the log into the file as it grows (every 1,000 pages), but begins it anew only when no reader
    needs it any more; a long reader leaves a log as long as what was written meanwhile.
    """
    with guarded_transaction(engine), contextlib.suppress(sqlite3.Error, DBAPIError), engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        timeout = driver.execute("PRAGMA busy_timeout").fetchone()[0]
        driver.execute("PRAGMA busy_timeout = 0")
        try:
            busy, _, _ = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            driver.execute(f"PRAGMA busy_timeout = {timeout}")
        return not busy
    return False


def _mode(engine: Engine) -> str:
    with read(engine) as connection:
        return str(connection.exec_driver_sql("PRAGMA journal_mode").scalar_one())


def _leave_write_ahead_log(path: Path) -> None:
    """Write the log into the file and remove it, unless somebody has the file open."""
    uri = file_uri(path, read_only=False)
    with (
        contextlib.suppress(sqlite3.OperationalError),  # it is locked
        closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # before the file is read: uses no shared memory
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA journal_mode = TRUNCATE")
