"""Rows to stdout, as a table, JSON or CSV; progress to stderr, where it is a terminal."""

from __future__ import annotations

import json
import re
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
_LEAST = 12  # columns that a cut cell keeps

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
        sys.stdout.flush()
    else:
        for text in table_lines(columns, values, terminal_width()):
            click.echo(text)
        if not values and not n_more:
            click.echo("no rows", err=True)
    if n_more:
        click.echo(f"{n_more} more; --limit 0 shows all", err=True)


def table_lines(columns: Sequence[str], values: Sequence[Sequence[Any]], width: int | None) -> Iterator[str]:
    """Yield the lines of a table, the head first, and what had to be left out.

    Args:
        columns: heads of the columns.
        values: the rows.
        width: columns of the terminal. Where a line does not fit, heads are broken and the widest cells that hold no
            numbers cut, and at last columns at the right are left out. None: any.
    """
    names = [one_line(name) for name in columns]
    texts = [list(map(cell_text, line)) for line in values]
    is_number = [any(_is_number(line[i]) for line in values) for i in range(len(names))]
    cells = [[width_of(line[i]) for line in texts] for i in range(len(names))]
    widths = _fitting(names, cells, is_number, width)
    for line in _head(names, widths):
        yield click.style(_line(line, widths, is_number), bold=True)
    for line in texts:
        yield _line(line, widths, is_number)
    if len(widths) < len(names):
        left_out = ", ".join(names[len(widths) :])
        yield click.style(f"no room for {left_out}; choose with --columns, or print --format csv", dim=True)


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


def _line(texts: Sequence[str], widths: Sequence[int], is_number: Sequence[bool]) -> str:
    cells = zip(texts, widths, is_number, strict=False)  # the widths are of the columns that there is room for
    return _GAP.join(pad(cut(text, width), width, right=right) for text, width, right in cells).rstrip()


def _head(names: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """Return the lines of the head: names that do not fit are broken after underscores."""
    broken = [_broken(name, width) for name, width in zip(names, widths, strict=False)]
    height = max(map(len, broken), default=0)
    return [
        [lines[i - height + len(lines)] if i >= height - len(lines) else "" for lines in broken] for i in range(height)
    ]


def _broken(name: str, width: int) -> list[str]:
    lines: list[str] = []
    for part in re.findall("[^_.]*[_.]?", name):
        if lines and width_of(lines[-1] + part) <= width:
            lines[-1] += part
        elif part:
            lines.append(part)
    return lines or [""]


def _fitting(
    names: Sequence[str], cells: Sequence[Sequence[int]], is_number: Sequence[bool], limit: int | None
) -> list[int]:
    """Return the widths of the columns that there is room for."""
    widths = [max([width_of(name), *column]) for name, column in zip(names, cells, strict=True)]
    if limit is None:
        return widths
    least = []
    for name, column, number in zip(names, cells, is_number, strict=True):
        word = max(map(width_of, _broken(name, 0)))
        least.append(max([word, *column]) if number else min(max([word, *column]), max(word, _LEAST)))
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
