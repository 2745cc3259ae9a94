"""Frames that are printed and drawn: a table, a picture for ``--plot``, a small chart for each of their lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slime_store.cli.charts import echo_chart
from slime_store.cli.output import write_frame
from slime_store.cli.plots import Line, draw

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Drawing:
    """What is drawn of a frame with a column ``reward_mean``.

    Attributes:
        by: column whose values tell the lines apart.
        line: makes the line of a picture, from its name and its rows.
        title: of the picture.
        x_label: of the picture.
        y_label: of the picture.
        chart: what the title of each small chart begins with.
    """

    by: str
    line: Callable[[str, Any], Line]
    title: str
    x_label: str
    y_label: str
    chart: str


def write_drawn(
    shown: pd.DataFrame,
    frame: pd.DataFrame,
    drawing: Drawing,
    *,
    form: str,
    limit: int | None,
    picture: str | None,
    chart: bool | None,
) -> None:
    """Draw the picture, then print the rows and the charts.

    Args:
        shown: the columns to print.
        frame: the same rows, with the columns to draw.
        drawing: what is drawn.
        form: what ``--format`` says.
        limit: what ``--limit`` says.
        picture: what ``--plot`` says.
        chart: what ``--chart`` says.

    Raises:
        ExportError: the picture cannot be written.
    """
    parts = {str(name): part for name, part in frame.groupby(drawing.by, sort=False)}
    if picture is not None:
        lines = [drawing.line(name, part) for name, part in parts.items()]
        draw(picture, lines, title=drawing.title, x_label=drawing.x_label, y_label=drawing.y_label)
    write_frame(shown, form, limit)
    for name, part in parts.items():
        echo_chart(f"{drawing.chart}, {name}", part["reward_mean"].tolist(), form, chart)
