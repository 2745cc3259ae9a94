"""Insert-unless-present, the one statement that the two databases spell alike but SQLAlchemy does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, FromClause, select
from sqlalchemy.dialects import postgresql, sqlite

from slime_store.database import chunked


def insert_unless_present(
    connection: Connection, table: FromClause, rows: Sequence[dict[str, Any]], key: str
) -> set[Any]:
    """Insert the rows whose unique ``key`` is not in the table yet; return the keys of those inserted.

    Rows go in the order given: callers sort by key, so that two transactions which add the same rows wait for each
    other instead of deadlocking. Costs one or two statements for each 50 rows.
    """
    inserted: set[Any] = set()
    column = table.c[key]
    for chunk in chunked(rows, 50):
        if connection.dialect.name == "sqlite":  # the write lock is held: what is there now is what there is
            keys = [row[key] for row in chunk]
            there = set(connection.execute(select(column).where(column.in_(keys))).scalars())
            new = [row for row in chunk if row[key] not in there]
            if new:
                connection.execute(sqlite.insert(table).values(new))  # type: ignore[arg-type]
            inserted |= {row[key] for row in new}
        else:
            statement = postgresql.insert(table).values(list(chunk))  # type: ignore[arg-type]
            statement = statement.on_conflict_do_nothing(index_elements=[key])
            inserted |= set(connection.execute(statement.returning(column)).scalars())
    return inserted
