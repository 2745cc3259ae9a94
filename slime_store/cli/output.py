"""Rows to stdout, as a table, JSON or CSV; progress to stderr, where it is a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from slime_store.cli.terminal import cut, one_line, pad, terminal_width, width_of

if TYPE_CHECKING:
    import pandas as pd

TABLE_ROWS = 50
_GAP = "  "
_LEAST, _LEAST_HEAD = 6, 8  # columns that a cut cell keeps, and the head of numbers

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How to print what comes out.",
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    help=f"Print at most N rows; 0: all.  [default: {TABLE_ROWS} in a table, else all]",
)


def row_limit(limit: int | None, form: str) -> int | None:
    """Return how many rows ``--limit`` and ``--format`` let through; None: all."""
    if limit is None:
        return TABLE_ROWS if form == "table" else None
    return limit or None


def write_rows(columns: Sequence[str], rows: Iterable[Any], form: str, limit: int | None = None) -> None:
    """Print one attribute of each row per column.

    A table is for people: it fits the terminal, and numbers are set to the right. JSON is one list of objects. CSV has
    a header, and None is empty in it, as in the table.

    Args:
        columns: names of the attributes.
        rows: the rows.
        form: "table", "json" or "csv".
        limit: what ``--limit`` says.
    """
    write_values(columns, [[getattr(row, column) for column in columns] for row in rows], form, limit)


def write_frame(frame: pd.DataFrame, form: str, limit: int | None = None, n_more: int = 0) -> None:
    """Print a data frame as ``write_rows`` prints rows; what is missing in it is None.

    Args:
        frame: the frame.
        form: see ``write_rows``.
        limit: see ``write_rows``.
        n_more: rows that the frame already lacks.
    """
    from slime_store.cli.text import frame_values

    write_values([str(name) for name in frame.columns], frame_values(frame), form, limit, n_more)


def write_values(
    columns: Sequence[str], values: list[list[Any]], form: str, limit: int | None = None, n_more: int = 0
) -> None:
    """Print a list of values for each row; see ``write_rows`` and ``write_frame``."""
    from slime_store.interchange.values import plain

    most = row_limit(limit, form)
    n_more += 0 if most is None else max(0, len(values) - most)
    values = values[:most]
    if form == "json":
        objects = [dict(zip(columns, plain(line), strict=True)) for line in values]
        click.echo(json.dumps(objects, indent=1, ensure_ascii=False))
    elif form == "csv":
        from slime_store.interchange.writers import CsvWriter

        writer = CsvWriter(sys.stdout.buffer, columns, line_end="\n")
        for line in values:
            writer.write(line)
        writer.finish()
    else:
        for text in table_lines(columns, values, terminal_width()):
            click.echo(text)
    if n_more:
        click.echo(f"{n_more} more; --limit 0 shows all", err=True)


def table_lines(columns: Sequence[str], values: Sequence[Sequence[Any]], width: int | None) -> Iterator[str]:
    """Yield the lines of a table, the head first, and what had to be left out.

    Args:
        columns: heads of the columns.
        values: the rows.
        width: columns of the terminal. Where a line does not fit, heads and the widest cells that hold no numbers are
            cut, and at last columns at the right are left out. None: any.
    """
    texts = [[one_line(name) for name in columns], *[list(map(cell_text, line)) for line in values]]
    is_number = [any(_is_number(line[i]) for line in values) for i in range(len(columns))]
    natural = [[width_of(cell) for cell in column] for column in zip(*texts, strict=True)]
    widths = _fitting(natural, is_number, width)
    for i, line in enumerate(texts):
        cells = [
            pad(cut(cell, width), width, right=right)
            for cell, width, right in zip(line, widths, is_number, strict=False)
        ]
        text = _GAP.join(cells).rstrip()
        yield click.style(text, bold=True) if i == 0 else text
    if len(widths) < len(columns):
        names = ", ".join(texts[0][len(widths) :])
        yield click.style(f"no room for {names}; choose with --columns, or print --format csv", dim=True)


def cell_text(value: Any) -> str:
    """Return a value in one line, which any terminal can take; numbers with four digits that count."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, (tuple, list)):
        return "; ".join(map(cell_text, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return one_line(str(value))


def _fitting(natural: Sequence[Sequence[int]], is_number: Sequence[bool], limit: int | None) -> list[int]:
    """Return the widths of the columns that fit, from those of their cells, the head's first."""
    widths = [max(column) for column in natural]
    if limit is None:
        return widths
    least = [
        max([_LEAST_HEAD, *column[1:]]) if number else _LEAST for column, number in zip(natural, is_number, strict=True)
    ]
    while (excess := sum(widths) + len(_GAP) * (len(widths) - 1) - limit) > 0:
        shrinkable = [i for i, width in enumerate(widths) if width > least[i]]
        if not shrinkable:
            if len(widths) == 1:
                break
            widths.pop()
            continue
        widest = max(shrinkable, key=lambda i: widths[i])
        next_widest = max((widths[i] for i in shrinkable if widths[i] < widths[widest]), default=0)
        widths[widest] -= min(excess, widths[widest] - max(least[widest], min(next_widest, widths[widest] - 1)))
    return widths


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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

    @property
    def wanted(self) -> bool:
        """Whether anybody sees it: counting what there is may cost something."""
        return sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
