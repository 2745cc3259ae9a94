"""Transactions: begun rightly, ended whatever happens, and their errors translated into ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine

from slime_store.database.engine import BEGIN_OPTION, BEGIN_WRITING, EngineState, engine_config, engine_state
from slime_store.database.failures import translated
from slime_store.database.forks import guarded_transaction
from slime_store.database.frozen import has_thawed
from slime_store.database.interrupts import closed_if_interrupted
from slime_store.errors import ReadOnlyStoreError, ReadOvertakenError, StoreError

_READ_OPTIONS: dict[str, dict[str, Any]] = {
    "sqlite": {BEGIN_OPTION: "BEGIN"},
    # one snapshot for all queries of the transaction, as SQLite gives it
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
}
WRITE_OPTIONS: dict[str, dict[str, Any]] = {
    "sqlite": {BEGIN_OPTION: BEGIN_WRITING},
    # whatever the server's default: what was looked up before a lock was waited for is looked up again after it
    "postgresql": {"isolation_level": "READ COMMITTED"},
}


@closed_if_interrupted
def read(engine: Engine) -> Iterator[Connection]:
    """Give a connection inside one read transaction: all its queries see the same state.

    With a write-ahead log and on PostgreSQL it never waits for a writer, and no writer waits for it. With a rollback
    journal, which a store on a network file system has, it waits while a writer commits, and a writer's commit waits
    until it has ended, each for at most its ``config.busy_timeout``. In-memory stores: one transaction at a time. Do
    not keep one open while the caller's code runs: fetch, leave, then yield.

    Raises:
        StoreBusyError: with a rollback journal, a writer did not finish its commit in time.
        StoreNotFoundError: the file does not exist.
        DamagedStoreError: the file is damaged.
        ReadOvertakenError: somebody began to write to a file that is read without locks.
        DatabaseError: anything else that the database reports, `StoreFullError` among it.
    """
    info: dict[str, Any] = {}
    try:
        with _transaction(engine, _READ_OPTIONS[engine.dialect.name]) as connection:
            info = connection.info
            yield connection
            _check_not_overtaken(engine, info)
    except StoreError:  # whatever the mixture of old and new pages looked like
        _check_not_overtaken(engine, info)
        raise


@closed_if_interrupted
def write(engine: Engine) -> Iterator[Connection]:
    """Give a connection inside one write transaction: committed when the body ends, rolled back when it raises.

    On SQLite there is one writer at a time, from here on; the wait is bounded by ``config.busy_timeout``. With a
    rollback journal the commit waits for readers too, see ``read``, and as long.

    Raises:
        ReadOnlyStoreError: the store was opened with ``read_only=True``.
        StoreBusyError: another writer, or with a rollback journal a reader, did not finish in time.
        StoreFullError: no space is left.
        DamagedStoreError: the file is damaged.
        DatabaseError: anything else that the database reports.
    """
    if engine_state(engine).config.read_only:
        raise ReadOnlyStoreError("write")
    with _transaction(engine, WRITE_OPTIONS[engine.dialect.name]) as connection:
        yield connection


def _check_not_overtaken(engine: Engine, info: dict[str, Any]) -> None:
    if engine.dialect.name == "sqlite" and has_thawed(info):
        raise ReadOvertakenError(engine_config(engine).display_url)


@closed_if_interrupted
def _transaction(engine: Engine, options: dict[str, Any]) -> Iterator[Connection]:
    state = engine_state(engine)
    with translated(state.config), guarded_transaction(engine):
        if state.config.is_memory:
            with _shared(engine, state) as connection:
                yield connection
        else:
            with engine.connect() as connection:
                connection = connection.execution_options(**options)
                with connection.begin():
                    yield connection


@closed_if_interrupted
def _shared(engine: Engine, state: EngineState) -> Iterator[Connection]:
    """Take the one connection of an in-memory store; a transaction inside a transaction becomes a savepoint."""
    with state.lock:
        if state.connection is not None:
            with state.connection.begin_nested():
                yield state.connection
            return
        with engine.connect() as connection, connection.begin():
            state.connection = connection
            try:
                yield connection
            finally:
                state.connection = None
