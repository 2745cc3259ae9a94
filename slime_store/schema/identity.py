"""What tells the tables that were looked at when a store was opened from those that are there now."""

from __future__ import annotations

from sqlalchemy import Connection

from slime_store.config import StoreConfig
from slime_store.errors import DatabaseError, NewerSchemaError
from slime_store.schema.revisions import HEAD, VERSION_TABLE, read_revision


def tables_identity(connection: Connection) -> int | None:
    """Return what no other tables of these names have, or ever had, in a database; None where it is a file's own."""
    if connection.dialect.name != "postgresql":
        return None
    found: int | None = connection.exec_driver_sql("SELECT to_regclass('runs')::oid::bigint").scalar()
    return found


def check_same_tables(connection: Connection, config: StoreConfig, known: int | None) -> None:
    """Refuse to go on with tables that were dropped and made anew: their keys are other runs' and rollouts' now.

    Raises:
        DatabaseError: they were.
    """
    _check_same(config, tables_identity(connection), known)


def check_still_current(connection: Connection, config: StoreConfig, known: int | None) -> None:
    """Refuse to write to a store that was made anew, or upgraded by a newer version, since it was opened. One query.

    Raises:
        NewerSchemaError: it has another schema now.
        DatabaseError: its tables are not those that were there.
    """
    if config.is_sqlite:
        revision = read_revision(connection)
    else:
        query = f"SELECT to_regclass('runs')::oid::bigint, (SELECT max(version_num) FROM {VERSION_TABLE})"
        tables, revision = connection.exec_driver_sql(query).one()
        _check_same(config, tables, known)
    if revision not in (None, HEAD):
        raise NewerSchemaError(config.display_url, str(revision))


def _check_same(config: StoreConfig, tables: int | None, known: int | None) -> None:
    if tables != known:
        raise DatabaseError(config.display_url, "the store was made anew while it was open; open it again")
