"""Engines on stores with a table of the tests' own: this room knows none by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, schema_change, write

MakeEngine = Callable[..., Engine]


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    """Make engines that are disposed of at the end of the test."""
    made: list[Engine] = []

    def make(target: str | Path, *, read_only: bool = False, busy_timeout: float = 20.0) -> Engine:
        config = replace(StoreConfig.parse(target), read_only=read_only, busy_timeout=busy_timeout)
        made.append(create_store_engine(config))
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()


@pytest.fixture
def make_store(make_engine: MakeEngine) -> MakeEngine:
    """Make an engine on a new database with a table `t (a, b)`."""

    def make(target: str | Path, **options: float) -> Engine:
        config = StoreConfig.parse(target)
        if config.path is not None:
            config.path.touch(exist_ok=False)
        engine = make_engine(target, **options)
        with schema_change(engine) as connection:
            connection.exec_driver_sql("CREATE TABLE t (a BIGINT PRIMARY KEY, b TEXT)")
        return engine

    return make


def insert(engine: Engine, a: int, b: str = "") -> None:
    """Insert one row in a transaction of its own."""
    with write(engine) as connection:
        connection.exec_driver_sql(f"INSERT INTO t VALUES ({a}, '{b}')")
