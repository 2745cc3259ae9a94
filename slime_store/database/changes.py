"""The one transaction in which a schema is checked, changed and its version noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sqlalchemy import Connection, Engine, text

from slime_store.database import filesystem
from slime_store.database.advisory_locks import SCHEMA_CHANGE
from slime_store.database.engine import engine_state
from slime_store.database.failures import translated
from slime_store.database.forks import guarded_transaction
from slime_store.database.interrupts import closed_if_interrupted
from slime_store.database.numbers import set_number
from slime_store.database.postgresql import schema_name
from slime_store.database.sqlite import APPLICATION_ID, PAGE_SIZE
from slime_store.database.transactions import WRITE_OPTIONS
from slime_store.errors import DatabaseError, ReadOnlyStoreError


@closed_if_interrupted
def schema_change(engine: Engine) -> Iterator[Connection]:
    """Give a connection inside one transaction that nobody else's schema change can overlap.

    SQLite: foreign keys are off (set outside the transaction: inside it has no effect), since rebuilding a table would
    otherwise delete its children; before the commit it is checked that no more references dangle than before. A table
    can be rebuilt beneath a view. A file without any page gets our page size and application id, a number, and a
    write-ahead log where the file system allows it. PostgreSQL: an advisory lock is held, and the schema exists.

    Raises:
        ReadOnlyStoreError: the store was opened with ``read_only=True``.
        DatabaseError: more references dangle after the change (rolled back), or the database failed.
    """
    state = engine_state(engine)
    if state.config.read_only:
        raise ReadOnlyStoreError("change the schema")
    with translated(state.config), guarded_transaction(engine), state.lock, engine.connect() as connection:
        connection = connection.execution_options(**WRITE_OPTIONS[engine.dialect.name])
        if engine.dialect.name == "sqlite":
            with _sqlite(connection) as connection:
                yield connection
        else:
            with connection.begin():
                _prepare_postgresql(connection, schema_name(state.config), state.config.display_url)
                yield connection


@closed_if_interrupted
def _sqlite(connection: Connection) -> Iterator[Connection]:
    config = engine_state(connection.engine).config
    driver = connection.connection.driver_connection
    assert driver is not None
    is_new = driver.execute("PRAGMA page_count").fetchone()[0] == 0
    driver.execute("PRAGMA foreign_keys = OFF")
    driver.execute(
        "PRAGMA legacy_alter_table = ON"
    )  # else a view on a dropped table fails the renaming of its successor
    if is_new:
        driver.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    try:
        with connection.begin():
            before = _dangling(connection)
            yield connection
            if is_new:
                connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
                set_number(connection)
            if dangling := _dangling(connection) - before:
                tables = ", ".join(sorted({table for table, _ in dangling}))
                raise DatabaseError(
                    config.display_url, f"the schema change would leave dangling references in {tables}"
                )
        if is_new and config.path is not None and not filesystem.is_network(filesystem.filesystem_type(config.path)):
            driver.execute("PRAGMA journal_mode = WAL")
    finally:
        driver.execute("PRAGMA legacy_alter_table = OFF")
        driver.execute("PRAGMA foreign_keys = ON")


def _dangling(connection: Connection) -> Counter[tuple[str, str]]:
    """Count the references into nothing, by table and parent: those of somebody else's tables are his affair."""
    return Counter((str(row[0]), str(row[2])) for row in connection.exec_driver_sql("PRAGMA foreign_key_check"))


def _prepare_postgresql(connection: Connection, schema: str, display_url: str) -> None:
    connection.execute(
        text("SELECT pg_advisory_xact_lock(:ours, hashtext(:schema))"), {"ours": SCHEMA_CHANGE, "schema": schema}
    )
    encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != "UTF8":
        raise DatabaseError(display_url, f"the database has the encoding {encoding}; create it with ENCODING 'UTF8'")
    # IF NOT EXISTS would ask for the right to create schemas even where an administrator made this one
    if not connection.scalar(text("SELECT 1 FROM pg_namespace WHERE nspname = :schema"), {"schema": schema}):
        connection.exec_driver_sql(f'CREATE SCHEMA "{schema}"')
