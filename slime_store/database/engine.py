"""Makes the engine of a store: one place that knows how SQLite and PostgreSQL are to be set up."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import cast

from sqlalchemy import Connection, Engine

from slime_store.config import StoreConfig
from slime_store.database.after_fork import tell_after_fork
from slime_store.database.forks import make_fork_safe

STATE_OPTION = "slime_store_state"
"""Execution option of the engine: its `EngineState`."""

BEGIN_OPTION = "slime_store_begin"
"""Execution option of a connection: the statement that opens its SQLite transactions."""

BEGIN_WRITING = "BEGIN IMMEDIATE"
"""The one for writing: a transaction that reads first and turns into a writer fails at once, whatever the timeout."""


@dataclass(eq=False)
class EngineState:
    """What transactions must know of their engine.

    Attributes:
        config: where the store is and how it was opened.
        lock: in-memory stores only: one thread at a time has the one connection.
        connection: in-memory stores only: the connection inside its outermost transaction.
    """

    config: StoreConfig
    lock: threading.RLock = field(default_factory=threading.RLock)
    connection: Connection | None = None

    def after_fork(self) -> None:
        """Take a lock of one's own: the parent's may be held by a thread that is not here."""
        self.lock = threading.RLock()


def create_store_engine(config: StoreConfig) -> Engine:
    """Return the engine of the store at ``config``. Connects to nothing and creates no file.

    The engine may be used from any number of threads, and goes on to work in forked children. Take transactions from
    `slime_store.database.read` and `write` only: they know how to begin them and translate errors.

    Raises:
        InvalidUrlError: an option of the URL makes no sense.
        MissingPackageError: the database's driver is not installed.
    """
    state = EngineState(config)
    if config.is_sqlite:
        from slime_store.database.sqlite import create_sqlite_engine as create
    else:
        from slime_store.database.postgresql import create_postgresql_engine as create
    engine = create(config, {STATE_OPTION: state})
    make_fork_safe(engine)
    tell_after_fork(state)
    return engine


def engine_state(engine: Engine) -> EngineState:
    """Return the state of an engine made by `create_store_engine`."""
    return cast(EngineState, engine.get_execution_options()[STATE_OPTION])


def engine_config(engine: Engine) -> StoreConfig:
    """Return the configuration that the engine was made from."""
    return engine_state(engine).config
