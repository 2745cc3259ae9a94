"""Stores opened by the schema room alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from slime_store.config import StoreConfig
from slime_store.database import create_store_engine
from slime_store.schema import ensure_schema


@pytest.fixture
def open_store() -> Iterator[Callable[..., Engine]]:
    """Make an engine and ensure its schema; all engines are disposed of at the end of the test."""
    engines: list[Engine] = []

    def open_one(target: str | Path, *, read_only: bool = False) -> Engine:
        config = StoreConfig.parse(target, read_only=read_only)
        engine = create_store_engine(config)
        engines.append(engine)
        ensure_schema(engine, config)
        return engine

    yield open_one
    for engine in engines:
        engine.dispose()
