"""Insert-unless-present, with a number of statements that does not grow with the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, select

from slime_store.database import chunked, insert_rows


def insert_unless_present(
    connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> set[Any]:
    """Insert the rows whose first column, a unique key, is not in the table yet; return the keys of those inserted.

    Rows go in the order given: callers sort by key, so that two transactions which add the same rows wait for each
    other instead of deadlocking.
    """
    if not rows:
        return set()
    if connection.dialect.name != "sqlite":
        return _insert_unless_present(connection, table, columns, rows)
    there: set[Any] = set()  # the write lock is held: what is there now is what there is
    for chunk in chunked([row[0] for row in rows]):
        there |= set(connection.execute(select(table.c[columns[0]]).where(table.c[columns[0]].in_(chunk))).scalars())
    new = [row for row in rows if row[0] not in there]
    insert_rows(connection, table, columns, new)
    return {row[0] for row in new}


def _insert_unless_present(
    connection: Connection, table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> set[Any]:
    """Send the rows as one array a column: one statement, whose text is the same whatever their number."""
    quote = connection.dialect.identifier_preparer.quote
    names = ", ".join(map(quote, columns))
    types = [table.c[name].type.compile(connection.dialect) for name in columns]
    arrays = ", ".join(f"%s::{kind}[]" for kind in types)
    statement = (
        f"INSERT INTO {quote(table.name)} ({names}) SELECT * FROM unnest({arrays}) "
        f"ON CONFLICT ({quote(columns[0])}) DO NOTHING RETURNING {quote(columns[0])}"
    )
    values = tuple(list(column) for column in zip(*rows, strict=True))
    return set(connection.exec_driver_sql(statement, values).scalars())
