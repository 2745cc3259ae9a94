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
from slime_store.database.transactions import write
from slime_store.errors import DatabaseError


def ensure_number(engine: Engine) -> int:
    """Give an SQLite store a number unless it has one, or is read-only, and return it; 0: it has none.

    Of several processes that do this at once, the first one wins. Where nothing can be written, on a full disk for
    example, the store goes on without: room may be about to be made.
    """
    if engine.dialect.name != "sqlite" or engine_config(engine).read_only:
        return 0
    with contextlib.suppress(DatabaseError), write(engine) as connection:
        return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one()) or set_number(connection)
    return 0


def set_number(connection: Connection) -> int:
    """Give the store of a write transaction a number, and return it."""
    number = secrets.randbelow(2**31 - 1) + 1
    connection.exec_driver_sql(f"PRAGMA user_version = {number}")
    return number
