"""Which statements a piece of code sends, and which tables and columns they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect every statement that any engine sends through SQLAlchemy, but what each transaction begins with."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith(("BEGIN", "SELECT to_regclass")):
            sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def tables_of(sent: list[str]) -> set[str]:
    """Return the tables that statements name after FROM or JOIN."""
    return {name for statement in sent for name in re.findall(r"(?:FROM|JOIN)\s+(?:\w+\.)?\"?([a-z_]+)", statement)}


def columns_of(sent: list[str]) -> set[str]:
    """Return every ``table.column`` that statements name."""
    return {name for statement in sent for name in re.findall(r"\b[a-z_]+\.[a-z_]+\b", statement)}
