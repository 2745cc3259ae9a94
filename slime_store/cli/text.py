"""Parts of what `show` commands print."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from slime_store.cli.output import cell_text, table_lines
from slime_store.cli.terminal import cut, one_line

DEFAULT_WIDTH = 100
"""Columns of rules and charts where there is no terminal."""
MOST_ENTRIES = 20
"""Entries of a document that are shown to people."""


def counted(n: int, plural: str) -> str:
    """Return a number and what it counts: "1 run", "1,024 runs"; the name is one of those that end with s."""
    return f"{n:,} {plural.removesuffix('s') if n == 1 else plural}"


def heading(text: str) -> str:
    """Return the first line."""
    return click.style(one_line(text), bold=True)


def facts(pairs: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Yield a line for each name and value; those without a value are left out."""
    known = [(name, cell_text(value)) for name, value in pairs if value is not None]
    margin = max((len(name) for name, _ in known), default=0)
    for name, text in known:
        yield f"{click.style(name.ljust(margin), dim=True)}  {text}"


def section(title: str, width: int | None) -> Iterator[str]:
    """Yield an empty line and a rule with a title."""
    text = f"── {one_line(title)} "
    yield ""
    yield click.style(text + "─" * max(0, min(width or DEFAULT_WIDTH, DEFAULT_WIDTH) - len(text)), fg="cyan")


def document(value: Any, width: int | None, *, most: int | None = None) -> Iterator[str]:
    """Yield a line for each entry of a dict, cut where ``most`` are shown of more; anything else in one line."""
    if not isinstance(value, dict):
        yield inline(value)
        return
    for number, (key, item) in enumerate(value.items()):
        if most is not None and number >= most:
            yield f"  … {len(value) - most} more; --format json shows all"
            return
        line = f"  {inline(key)}: {inline(item)}"
        yield line if most is None or width is None else cut(line, width)


def table(columns: Sequence[str], values: Iterable[Sequence[Any]], width: int | None) -> Iterator[str]:
    """Yield the lines of a table."""
    yield from table_lines(columns, list(values), width)


def inline(value: Any) -> str:
    """Return a value in one line: text and numbers as they are, anything else as JSON."""
    from slime_store.interchange.values import json_text

    if isinstance(value, float):
        return repr(value)
    return one_line(value if isinstance(value, str) else json_text(value))


def write_json(value: Any) -> None:
    """Print a value as JSON, in lines."""
    from slime_store.interchange.values import plain

    click.echo(json.dumps(plain(value), indent=1, ensure_ascii=False))


def echo(lines: Iterable[str]) -> None:
    """Print lines."""
    for line in lines:
        click.echo(line)


def frame_values(frame: Any) -> list[list[Any]]:
    """Return the rows of a data frame; what is missing is None."""
    missing = frame.isna().to_numpy()
    columns: list[list[Any]] = [frame.iloc[:, i].tolist() for i in range(frame.shape[1])]
    return [
        [None if gone else value for value, gone in zip(row, missing[i], strict=True)]
        for i, row in enumerate(zip(*columns, strict=True))
    ]


def records(frame: Any) -> list[dict[str, Any]]:
    """Return the rows of a data frame as dicts."""
    names = [str(name) for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in frame_values(frame)]
