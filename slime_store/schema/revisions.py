"""The schema revisions that this version of slime_store knows, and the one that a database has.

Kept here as data, so that opening a store that is up to date needs one small query and no Alembic. A test compares
the list with `migrations/versions`.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from slime_store.database import engine_config, read
from slime_store.errors import DamagedStoreError

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006")
"""Oldest first."""

HEAD = REVISIONS[-1]

VERSION_TABLE = "slime_store_version"
"""Not Alembic's ``alembic_version``: other programs keep theirs in the same database."""


_QUERIES = {
    # with brackets it is SQLite's own function, not somebody's table or view of that name
    "sqlite": f"SELECT version_num, user_version FROM {VERSION_TABLE}, pragma_user_version()",
    "postgresql": f"SELECT version_num, 0 FROM {VERSION_TABLE}",
}


def stored_revision(engine: Engine) -> str | None:
    """Return the database's schema revision, or None where there is no version table or nothing in it."""
    return stored_version(engine)[0]


def stored_version(engine: Engine) -> tuple[str | None, int]:
    """Return the database's schema revision and, in the same query, an SQLite store's number; 0: not known."""
    with read(engine) as connection:
        return _read_version(connection)


def read_revision(connection: Connection) -> str | None:
    """Return the schema revision inside a transaction; on PostgreSQL a missing table ends that transaction."""
    return _read_version(connection)[0]


def _read_version(connection: Connection) -> tuple[str | None, int]:
    try:
        rows = connection.exec_driver_sql(_QUERIES[connection.dialect.name]).fetchall()
    except DBAPIError as error:
        if _is_missing_table(error.orig):
            return None, 0
        raise
    if len(rows) > 1:
        raise DamagedStoreError(engine_config(connection.engine).display_url, f"{VERSION_TABLE} has {len(rows)} rows")
    if rows and not isinstance(rows[0][0], str):
        raise DamagedStoreError(engine_config(connection.engine).display_url, f"{VERSION_TABLE} holds no text")
    return (str(rows[0][0]), int(rows[0][1])) if rows else (None, 0)


def _is_missing_table(error: BaseException | None) -> bool:
    if isinstance(error, sqlite3.OperationalError):
        return "no such table" in str(error)
    return getattr(error, "sqlstate", None) == "42P01"  # undefined_table
