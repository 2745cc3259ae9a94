"""A look into a store's tables with the database's own driver: nothing of ours between the test and the rows."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from sqlalchemy import make_url


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """Return what a query finds. Both databases must understand it."""
    address = make_url(url)
    if address.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(address.database))) as connection:
            return connection.execute(query).fetchall()
    import psycopg

    conninfo = address.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, options="-c search_path=slime_store") as connection:
        return connection.execute(query.encode()).fetchall()


def row(url: str, query: str) -> tuple[Any, ...]:
    """Return the one row that a query finds."""
    (only,) = rows(url, query)
    return only


def value(url: str, query: str) -> Any:
    """Return the one value that a query finds."""
    (only,) = row(url, query)
    return only


def tables(url: str) -> list[str]:
    """Return the names of the store's tables, without that of the schema version."""
    if make_url(url).get_backend_name() == "sqlite":
        query = "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
        query += " WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'"
    else:
        query = "SELECT relname, attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
        query += " WHERE relkind = 'r' AND attnum > 0 AND relnamespace = 'slime_store'::regnamespace"
    found = rows(url, query)
    return sorted({name for name, _ in found} - {name for name, column in found if column == "version_num"})


def counts(url: str) -> dict[str, int]:
    """Return the number of rows of each table."""
    names = tables(url)
    return dict(rows(url, " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in names)))


def execute(url: str, *statements: str) -> None:
    """Change a store's tables behind its back: nothing enforces references."""
    address = make_url(url)
    if address.get_backend_name() == "sqlite":
        with closing(sqlite3.connect(str(address.database))) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        return
    import psycopg

    conninfo = address.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, options="-c search_path=slime_store") as connection:
        connection.execute("SET session_replication_role = replica")
        for statement in statements:
            connection.execute(statement.encode())
