"""Small charts of block characters."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import click

from slime_store.cli.terminal import one_line, terminal_width

_EIGHTHS = " ▁▂▃▄▅▆▇█"


chart_option = click.option(
    "--chart/--no-chart", default=None, help="Draw a small chart below the table.  [default: on a terminal]"
)


def echo_chart(title: str, values: Sequence[float | None], form: str, wanted: bool | None) -> None:
    """Print a chart of several values, where ``--chart`` says so: by default below a table on a terminal."""
    shown = sys.stdout.isatty() if wanted is None else wanted
    lines = column_chart(values, width=terminal_width() or 100) if shown and form == "table" and len(values) > 1 else []
    if lines:
        click.echo(f"\n{one_line(title)}")
    for line in lines:
        click.echo(click.style(line, fg="cyan"))


def column_chart(
    values: Sequence[float | None], *, width: int, height: int = 6, low: float | None = None, high: float | None = None
) -> list[str]:
    """Return the lines of a chart with a column for each value, the scale at its left.

    Args:
        values: from left to right; None and NaN leave a gap. Where there are more than fit, neighbours are averaged.
        width: columns of the terminal.
        height: lines.
        low: value of the bottom; None: the lowest.
        high: value of the top; None: the highest.
    """
    numbers = [None if value is None or not math.isfinite(value) else float(value) for value in values]
    known = [value for value in numbers if value is not None]
    if not known:
        return []
    bottom = min(known) if low is None else low
    top = max(known) if high is None else high
    labels = [f"{top:.4g}", f"{bottom:.4g}"]
    margin = max(map(len, labels))
    room = max(8, width - margin - 2)
    cells = _averaged(numbers, room)
    stretch = max(1, min(4, room // len(cells)))
    span = top / 2 - bottom / 2  # halves: of the largest numbers the difference is none
    eighths = [
        None if cell is None else 1 + round((height * 8 - 1) * ((cell / 2 - bottom / 2) / span if span > 0 else 0.5))
        for cell in cells
    ]
    lines = []
    for line in range(height):
        floor = 8 * (height - 1 - line)
        label = labels[0] if line == 0 else labels[1] if line == height - 1 else ""
        blocks = [" " if n is None else _EIGHTHS[max(0, min(8, n - floor))] for n in eighths]
        lines.append(f"{label.rjust(margin)} ┤{''.join(block * stretch for block in blocks)}".rstrip())
    return lines


def strip(levels: Sequence[float]) -> str:
    """Return one block character for each number from 0 to 1."""
    return "".join(_EIGHTHS[1 + min(7, max(0, int(level * 8)))] for level in levels)


def _averaged(values: Sequence[float | None], room: int) -> list[float | None]:
    if len(values) <= room:
        return list(values)
    cells: list[float | None] = []
    for i in range(room):
        part = [v for v in values[i * len(values) // room : (i + 1) * len(values) // room] if v is not None]
        cells.append(sum(v / len(part) for v in part) if part else None)
    return cells
