"""New stores faster: the statements that the migrations send to an empty database are kept and sent again.

The migrations themselves run for the first store of each kind in each process, and in all tests that are about them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event

from slime_store.schema import migrator
from slime_store.schema.revisions import VERSION_TABLE

_run_alembic = migrator.run_alembic
_kept: dict[str, list[str]] = {}


def run_alembic(connection: Connection, revision: str = "head", directory: Path | None = None) -> None:
    """Do as the migrator's function of this name."""
    kind = connection.dialect.name
    if revision != "head" or directory is not None or not _is_empty(connection):
        _run_alembic(connection, revision, directory)
    elif kind in _kept:
        for statement in _kept[kind]:
            connection.exec_driver_sql(statement)
    else:
        sent: list[str] = []
        with _listening(connection, sent.append):
            _run_alembic(connection, revision, directory)
        _kept[kind] = sent if kind == "sqlite" else [";\n".join(sent)]  # psycopg sends them all at once


class _listening:
    def __init__(self, connection: Connection, note: Callable[[str], Any]) -> None:
        self._connection = connection
        self._note = note

    def _called(self, _connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA")):
            assert not parameters
            self._note(statement)

    def __enter__(self) -> None:
        event.listen(self._connection, "before_cursor_execute", self._called)

    def __exit__(self, *_: object) -> None:
        event.remove(self._connection, "before_cursor_execute", self._called)


def _is_empty(connection: Connection) -> bool:
    if connection.dialect.name == "sqlite":
        return connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar_one() == 0
    return connection.exec_driver_sql(f"SELECT to_regclass('{VERSION_TABLE}') IS NULL").scalar_one() is True
