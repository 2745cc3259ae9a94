"""PostgreSQL: how connections are opened and set up.

All tables live in a schema of their own, ``slime_store``, so that a database can be shared with other programs
(mlflow, optuna). ``postgresql+psycopg://HOST/DB?schema=NAME`` chooses another one, e.g. one for each team.
"""

from __future__ import annotations

import re
from functools import cache
from math import ceil
from typing import Any

from sqlalchemy import Engine, create_engine, event

from slime_store.config import StoreConfig, secret_options
from slime_store.database.bulk import BINARY_RESULTS
from slime_store.database.pool import KeptConnections
from slime_store.errors import InvalidUrlError, MissingPackageError

DEFAULT_SCHEMA = "slime_store"

_CONNECT_ARGS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,  # seconds; a dead server or firewall is noticed within a minute, not two hours
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "application_name": "slime_store",
    "client_encoding": "utf8",
}

# The keepalives are the server's: else the transaction of a machine that lost its power holds its run for two hours.
# What a database or a role may preset and what would change values or the meaning of statements is set back: with
# extra_float_digits = 0, the default before PostgreSQL 12, floats come back rounded to 15 digits. A record compresses
# payloads inside its transaction, gigabytes of images for a minute: the limit on idle ones is ten minutes at least.
_SETUP = """
SELECT set_config('search_path', %s, false),
       set_config('lock_timeout', %s, false),
       set_config('timezone', 'UTC', false),
       set_config('extra_float_digits', '3', false),
       set_config('standard_conforming_strings', 'on', false),
       set_config('array_nulls', 'on', false),
       set_config('transform_null_equals', 'off', false),
       set_config('datestyle', 'ISO', false),
       set_config('bytea_output', 'hex', false),
       set_config('idle_in_transaction_session_timeout', (SELECT CASE WHEN setting::bigint BETWEEN 1 AND 600000
           THEN '600000' ELSE setting END FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'), false),
       set_config('tcp_keepalives_idle', '30', false),
       set_config('tcp_keepalives_interval', '10', false),
       set_config('tcp_keepalives_count', '3', false),
       set_config('synchronous_commit', CASE current_setting('synchronous_commit')
           WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)
"""


def create_postgresql_engine(config: StoreConfig, options: dict[str, Any]) -> Engine:
    """Return an engine whose connections see only the store's own schema.

    Raises:
        InvalidUrlError: the ``schema`` option is no plain name.
        MissingPackageError: psycopg is not installed.
    """
    try:
        import psycopg  # noqa: F401  SQLAlchemy's own error names no way out
    except ImportError as error:  # also where its C library is missing
        raise MissingPackageError("psycopg", "postgres", str(error)) from error
    schema = schema_name(config)
    url = config.sqlalchemy_url.difference_update_query(["schema"])
    given = {name: values[-1] for name, values in secret_options(url).items()}  # not in the engine's repr
    engine = create_engine(
        url.difference_update_query(given),
        connect_args={name: value for name, value in _CONNECT_ARGS.items() if name not in url.query} | given,
        hide_parameters=True,
        poolclass=KeptConnections,
        pool_pre_ping=True,  # a run lasts days: the server is restarted under it
        pool_recycle=3600,
        execution_options=options,
    )

    def set_up(connection: Any, _record: Any) -> None:
        # of the timeouts that PostgreSQL has, 0 means none
        connection.autocommit = True  # one round trip, and a later rollback does not undo it
        connection.execute(_SETUP, (f'"{schema}"', f"{max(1, ceil(config.busy_timeout * 1000))}ms"))
        connection.autocommit = False
        connection.server_cursor_factory = _droppable_cursor()

    event.listen(engine, "connect", set_up, insert=True)  # before SQLAlchemy asks for the current schema
    event.listen(engine, "before_cursor_execute", _ask_for_binary)
    return engine


@cache
def _droppable_cursor() -> type[Any]:
    from psycopg import ServerCursor

    class DroppableCursor(ServerCursor[Any]):
        """A cursor on the server that may be dropped: it ends there with its transaction, or with its connection."""

        def __del__(self) -> None:  # type: ignore[override]
            pass  # psycopg warns of one that was not closed, as one on a broken connection cannot be

    return DroppableCursor


def _ask_for_binary(
    _connection: Any, cursor: Any, _statement: str, _parameters: Any, context: Any, _executemany: bool
) -> None:
    if context is not None and context.execution_options.get(BINARY_RESULTS):
        cursor.format = 1  # psycopg.pq.Format.BINARY


def schema_name(config: StoreConfig) -> str:
    """Return the PostgreSQL schema that holds the store's tables.

    Raises:
        InvalidUrlError: the ``schema`` option is no plain lower-case name.
    """
    name = config.sqlalchemy_url.query.get("schema", DEFAULT_SCHEMA)
    if not isinstance(name, str) or not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name) or name.startswith("pg_"):
        raise InvalidUrlError(config.display_url, f"schema={name!r} is not a name of lower-case letters and digits")
    return name
