"""Bulk inserts and chunks (case L1)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Engine,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    event,
    func,
    select,
)

from slime_store.config import StoreConfig
from slime_store.database import chunked, create_store_engine, insert_rows, read, schema_change, write
from slime_store.models.base import UTCDateTime

TABLE = Table(
    "everything",
    MetaData(),
    Column("id", BigInteger, primary_key=True),
    Column("small", SmallInteger),
    Column("number", Double),
    Column("text", Text),
    Column("data", LargeBinary),
    Column("flag", Boolean),
    Column("at", UTCDateTime),
    Column("order", BigInteger),  # a reserved word
)
NAMES = [column.name for column in TABLE.columns]
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone.utc)


@pytest.fixture
def engine(store_url: str) -> Any:
    config = StoreConfig.parse(store_url)
    if config.path is not None:
        config.path.touch()
    engine = create_store_engine(config)
    with schema_change(engine) as connection:
        TABLE.create(connection)
    yield engine
    engine.dispose()


def rows_of(engine: Engine) -> list[tuple[Any, ...]]:
    with read(engine) as connection:
        return [tuple(row) for row in connection.execute(select(TABLE).order_by(TABLE.c.id))]


def test_every_plain_value_comes_back_as_it_was_inserted(engine: Engine) -> None:
    rows = [
        (1, -3, 0.1, "text\twith\\N and\nlines", b"\0\xff\\x", True, AT, 7),
        (2**62, 32767, float("inf"), "", b"", False, AT.astimezone(timezone(timedelta(hours=5))), -1),
        (2**63 - 1, None, None, None, None, None, None, None),
    ]
    with write(engine) as connection:
        insert_rows(connection, TABLE, NAMES, rows)
    assert rows_of(engine) == rows
    assert rows_of(engine)[1][6].utcoffset() == timedelta(0)


def test_columns_may_be_fewer_and_in_any_order(engine: Engine) -> None:
    with write(engine) as connection:
        insert_rows(connection, TABLE, ["text", "id"], [("a", 1), ("b", 2)])
        insert_rows(connection, TABLE, ["text", "id"], [])
    assert [(row[0], row[3]) for row in rows_of(engine)] == [(1, "a"), (2, "b")]


def test_l1_seventy_thousand_rows_are_one_statement(engine: Engine) -> None:
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    rows = [(i, i % 100, i / 2, "x", b"y", True, AT, i) for i in range(70_000)]
    with write(engine) as connection:
        insert_rows(connection, TABLE, NAMES, rows)
    inserts = [statement for statement in statements if statement.startswith("INSERT")]
    assert len(inserts) == (1 if engine.dialect.name == "sqlite" else 0)  # COPY goes past SQLAlchemy
    with read(engine) as connection:
        assert connection.scalar(select(func.count()).select_from(TABLE)) == 70_000


def test_a_failed_bulk_insert_leaves_no_row(engine: Engine) -> None:
    from slime_store.errors import DatabaseError

    with pytest.raises(DatabaseError, match=r"(?i)unique|duplicate"), write(engine) as connection:
        insert_rows(connection, TABLE, ["id"], [(1,), (2,), (1,)])
    assert rows_of(engine) == []


def test_l1_chunks_hold_all_ids_in_order() -> None:
    pieces = list(chunked(range(1201)))
    assert [len(piece) for piece in pieces] == [500, 500, 201]
    assert [i for piece in pieces for i in piece] == list(range(1201))
    assert list(chunked([])) == []


def test_a_number_that_a_column_cannot_hold_is_refused_and_not_cut(store_url: str, engine: Engine) -> None:
    if store_url.startswith("sqlite"):
        with write(engine) as connection:
            insert_rows(connection, TABLE, ["id", "small"], [(1, 40_000)])
        assert rows_of(engine)[0][1] == 40_000
        return
    for number in (2**15, -(2**15) - 1):
        with pytest.raises(OverflowError, match=r"everything.small"), write(engine) as connection:
            insert_rows(connection, TABLE, ["id", "small"], [(1, 7), (2, number)])
    assert rows_of(engine) == []
