"""Locks that SQLite's single writer makes needless."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, select, text

from slime_store.database.advisory_locks import SHARED_CONTENT
from slime_store.models import RunRow


def lock_shared_content(connection: Connection, *, exclusive: bool) -> None:
    """Keep prompts and blobs that this transaction found from being deleted before it refers to them.

    Recording takes the lock shared, deleting takes it alone; it is held until the transaction ends. A record that
    deletes, too, does not keep the others waiting: see ``held`` and ``unused_and_locked``. SQLite, which has one
    writer, needs none of these.
    """
    if connection.dialect.name == "postgresql":
        mode = "pg_advisory_xact_lock" if exclusive else "pg_advisory_xact_lock_shared"
        connection.execute(text(f"SELECT {mode}({SHARED_CONTENT}, hashtext(current_schema()))"))


def lock_runs(connection: Connection) -> None:
    """Let no other writer of any run in until the transaction ends, and nobody add a run or a session.

    Whoever writes locks a run's row, which PostgreSQL does not allow meanwhile; reading goes on. To be taken where
    others lock their run: after the lock of the shared content.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"LOCK TABLE {RunRow.__tablename__} IN EXCLUSIVE MODE"))


def held(query: Select[Any], model: Any) -> Select[Any]:
    """Let nobody delete the rows of a table that a query finds until the transaction ends.

    As a reference to them would: it does not keep others from referring to them, too.
    """
    return query.with_for_update(read=True, key_share=True, of=model)


def unused_and_locked(
    connection: Connection, model: Any, unused: ColumnElement[bool], pks: Sequence[int]
) -> Sequence[int]:
    """Return those of some rows that are unused and that no other transaction holds, and let nobody hold them.

    Ask again whether they are unused: a transaction that held one may have ended since this query began.
    """
    if connection.dialect.name == "sqlite":
        return pks
    query = select(model.id).where(model.id.in_(pks), unused).order_by(model.id)
    return connection.execute(query.with_for_update(skip_locked=True, of=model)).scalars().all()
