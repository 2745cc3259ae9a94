"""Rows to stdout, as a table, JSON or CSV; progress to stderr, where it is a terminal."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Any

import click

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How to print what comes out.",
)


def write_rows(columns: Sequence[str], rows: Iterable[Any], form: str) -> None:
    """Print one attribute of each row per column.

    A table is for people; numbers are set to the right. JSON is one list of objects. CSV has a header, and None is
    empty in it, as in the table.
    """
    values = [[getattr(row, column) for column in columns] for row in rows]
    if form == "json":
        objects = [{column: _json(value) for column, value in zip(columns, line, strict=True)} for line in values]
        click.echo(json.dumps(objects, indent=1))
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_text(value) for value in line] for line in values)
    else:
        _write_table(columns, values)


def _write_table(columns: Sequence[str], values: list[list[Any]]) -> None:
    texts = [list(columns), *[list(map(_text, line)) for line in values]]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    is_number = [any(isinstance(line[i], int) for line in values) for i in range(len(columns))]
    for line in texts:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def _text(value: Any) -> str:
    """One line, which any terminal and file can take."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, tuple):
        return "; ".join(map(_text, value))
    text = " ".join(str(value).split()) if isinstance(value, str) else str(value)
    return text.encode("utf-8", "replace").decode()


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, tuple) else value


class Progress:
    """A progress bar on stderr, from the first step on; nothing where stderr is no terminal.

    Called as the ``progress`` of the Python functions: with how many are done, and how many there are.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._stack = ExitStack()
        self._bar: Any = None

    def __call__(self, _done: int, total: int, _file: Any = None) -> None:
        """Go one step on."""
        if not sys.stderr.isatty():
            return
        if self._bar is None:
            bar = click.progressbar(length=total, label=self._label, file=sys.stderr)
            self._bar = self._stack.enter_context(bar)
        self._bar.update(1)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
