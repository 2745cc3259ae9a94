"""The number of an SQLite store: random, in the file's header, so that a store is known from another one in its place.

An inode number does not tell them apart: ``cp`` writes into the file that is there, and a file system gives that of a
file that is gone to the next one. Backups and copies have the number of their source, and inode numbers of their own.
It is SQLite's ``user_version``, which is there for its users; 0 is that of stores that earlier versions made.
"""

from __future__ import annotations

import contextlib
import secrets

from sqlalchemy import Connection, Engine

from slime_store.database.engine import engine_config
from slime_store.database.failures import translated
from slime_store.database.forks import guarded_transaction
from slime_store.database.transactions import WRITE_OPTIONS
from slime_store.errors import DatabaseError

_PATIENCE_MS = 1000
"""How long opening a store of an earlier version waits for a writer, to give it a number."""


def ensure_number(engine: Engine) -> int:
    """Give an SQLite store a number unless it has one, or is read-only, and return it; 0: it has none.

    Of several processes that do this at once, the first one wins. Where nothing can be written, on a full disk or
    beside another writer for example, the store goes on without: it gets one when it is opened again.
    """
    config = engine_config(engine)
    if engine.dialect.name != "sqlite" or config.read_only or config.is_memory:
        return 0
    with (
        contextlib.suppress(DatabaseError),
        translated(config),
        guarded_transaction(engine),
        engine.connect() as connection,
    ):
        driver = connection.connection.driver_connection
        assert driver is not None
        patience = driver.execute("PRAGMA busy_timeout").fetchone()[0]
        driver.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        try:
            connection = connection.execution_options(**WRITE_OPTIONS["sqlite"])
            with connection.begin():
                return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one()) or set_number(connection)
        finally:
            driver.execute(f"PRAGMA busy_timeout = {patience}")
    return 0


def set_number(connection: Connection) -> int:
    """Give the store of a write transaction a number, and return it."""
    number = secrets.randbelow(2**31 - 1) + 1
    connection.exec_driver_sql(f"PRAGMA user_version = {number}")
    return number
