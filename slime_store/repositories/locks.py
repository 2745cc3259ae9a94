"""Locks that SQLite's single writer makes needless."""

from __future__ import annotations

from sqlalchemy import Connection, text

from slime_store.database.advisory_locks import SHARED_CONTENT


def lock_shared_content(connection: Connection, *, exclusive: bool) -> None:
    """Keep prompts and blobs that this transaction found from being deleted before it refers to them.

    Recording takes the lock shared, deleting takes it alone; it is held until the transaction ends.
    SQLite, which has one writer, needs none.
    """
    if connection.dialect.name == "postgresql":
        mode = "pg_advisory_xact_lock" if exclusive else "pg_advisory_xact_lock_shared"
        connection.execute(text(f"SELECT {mode}({SHARED_CONTENT}, hashtext(current_schema()))"))
