"""Whether what is stored has the types of its columns and refers to what is there: SQLite takes anything anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Connection, DateTime, Float, Integer, LargeBinary, text
from sqlalchemy.types import TypeDecorator, TypeEngine

from slime_store.models import Base

_TIME = "'[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9]*'"


def wrong_values(connection: Connection) -> Iterator[str]:
    """Yield a sentence for each column that holds something of another type.

    Reads every row of every table, without what overflows its page; PostgreSQL, whose columns have types, needs none of
    it, and yields nothing.
    """
    if connection.dialect.name != "sqlite":
        return
    for table in Base.metadata.sorted_tables:
        columns = list(table.columns)
        counts = ", ".join(f"coalesce(sum(NOT ({_fits(column)})), 0)" for column in columns)
        row = connection.execute(text(f'SELECT {counts} FROM "{table.name}"')).one()
        for column, n_wrong in zip(columns, row, strict=True):
            if n_wrong:
                yield f"{n_wrong} values of {table.name}.{column.name} are no {_named(column)}"


def dangling_references(connection: Connection) -> Iterator[str]:
    """Yield a sentence for rows of a table that refer to rows of another one that are not there. SQLite only."""
    if connection.dialect.name != "sqlite":
        return
    rows = connection.exec_driver_sql("PRAGMA foreign_key_check")
    found = Counter((str(row[0]), str(row[2])) for row in rows if str(row[0]).lower() in Base.metadata.tables)
    for (table, parent), n in sorted(found.items()):
        yield f"{n} rows of {table} refer to rows of {parent} that are not there"


def _fits(column: Column[Any]) -> str:
    name = f'"{column.name}"'
    kinds = {"null"} if column.nullable else set[str]()
    kinds |= {"integer", "real"} if _is_a(column, Float) else {_stored_as(column)}
    fits = f"typeof({name}) IN ({', '.join(repr(kind) for kind in sorted(kinds))})"
    if _is_a(column, DateTime):
        is_day = f"date({name}, '+0 days') = substr({name}, 1, 10) AND substr({name}, 1, 4) <> '0000'"
        is_time = f"{name} GLOB {_TIME} AND julianday({name}) IS NOT NULL AND {is_day}"
        fits += f" AND ({name} IS NULL OR ({is_time}))"
    return fits


def _stored_as(column: Column[Any]) -> str:
    if _is_a(column, Integer) or _is_a(column, Boolean) or _is_a(column, BigInteger):
        return "integer"
    return "blob" if _is_a(column, LargeBinary) else "text"


def _named(column: Column[Any]) -> str:
    if _is_a(column, DateTime):
        return "times"
    return (
        "numbers" if _is_a(column, Float) else {"integer": "integers", "blob": "bytes"}.get(_stored_as(column), "text")
    )


def _is_a(column: Column[Any], kind: type[TypeEngine[Any]]) -> bool:
    of = column.type.impl_instance if isinstance(column.type, TypeDecorator) else column.type
    return isinstance(of, kind)
