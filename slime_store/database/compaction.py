"""Giving space back that deleted rows took."""

from __future__ import annotations

from sqlalchemy import Engine, inspect

from slime_store.database.engine import engine_config
from slime_store.database.failures import translated
from slime_store.database.forks import guarded_transaction
from slime_store.database.journal import truncate_log


def compact(engine: Engine) -> None:
    """Rewrite an SQLite file without its free pages, or make the dead rows of PostgreSQL's tables reusable.

    SQLite needs room for a second copy of the database meanwhile, and lets no other writer in. PostgreSQL gives space
    at the end of its files back and uses the rest again; others go on.
    """
    config = engine_config(engine)
    with translated(config), guarded_transaction(engine):
        if engine.dialect.name == "sqlite":
            with engine.connect() as connection:
                driver = connection.connection.driver_connection
                assert driver is not None
                driver.execute("VACUUM")
            if config.path is not None:
                truncate_log(engine)
        else:
            with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                quote = connection.dialect.identifier_preparer.quote
                for name in inspect(connection).get_table_names():
                    connection.exec_driver_sql(f"VACUUM (ANALYZE) {quote(name)}")
