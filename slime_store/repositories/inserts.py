"""Insert-unless-present, with a number of statements that does not grow with the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, select

from slime_store.database import chunked, insert_rows
from slime_store.repositories.locks import held

Digest = TypeVar("Digest", str, bytes)

_TRIES = 5  # more than one are needed when somebody deletes a row in the instant before it is held


def added_and_held(
    connection: Connection, model: Any, digests: Iterable[Digest], add: Callable[[Sequence[Digest]], set[Digest]]
) -> tuple[dict[Digest, int], set[Digest]]:
    """Add those contents that are not there, and hold them all until the transaction ends.

    Args:
        connection: inside a transaction.
        model: the table, with columns ``digest`` and ``id``.
        digests: of the contents.
        add: inserts some of them unless they are present, and returns those that it inserted.

    Returns:
        All keys by digest, and which contents were added.
    """
    wanted, added = sorted(digests), set[Digest]()
    keys: dict[Digest, int] = {}
    for _ in range(_TRIES):
        missing = [digest for digest in wanted if digest not in keys]
        if not missing:
            break
        added |= add(missing)
        keys |= keys_of(connection, model, missing)
    return keys, added


def keys_of(connection: Connection, model: Any, digests: Sequence[Digest]) -> dict[Digest, int]:
    """Return the keys of those contents that are there, by digest, and hold them until the transaction ends."""
    keys: dict[Digest, int] = {}
    for chunk in chunked(digests):
        query = held(select(model.digest, model.id).where(model.digest.in_(chunk)), model)
        keys |= {row[0]: row[1] for row in connection.execute(query)}
    return keys


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
