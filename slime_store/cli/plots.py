"""Pictures for ``--plot``, by matplotlib."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from slime_store.cli.failures import Failure

plot_option = click.option(
    "--plot",
    "picture",
    metavar="FILE",
    help="Draw it into a file as well: .png, .svg or .pdf. Needs matplotlib: pip install 'slime-store[plot]'.",
)


@dataclass(frozen=True)
class Line:
    """One line of a plot; ``low`` and ``high`` are an interval around it, or empty."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def check_picture(picture: str | None) -> None:
    """See that ``--plot`` can be done, before the work begins.

    Raises:
        Failure: the name has another ending.
        MissingPackageError: matplotlib is not installed.
    """
    from slime_store.errors import MissingPackageError

    if picture is None:
        return
    if Path(picture).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise Failure(f"--plot {picture}: the name ends with .png, .svg or .pdf", 2)
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise MissingPackageError("matplotlib", "plot", str(error)) from error


def draw(picture: str, lines: Sequence[Line], *, title: str, x_label: str, y_label: str) -> None:
    """Draw lines into a file, which appears whole or not at all.

    Raises:
        ExportError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    from slime_store.interchange.files import whole_file

    path = Path(picture)
    figure: Any = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for line in lines:
        (drawn,) = axes.plot(line.x, line.y, marker="o", markersize=3, label=_literal(line.label))
        if len(line.low):
            axes.fill_between(line.x, line.low, line.high, alpha=0.2, color=drawn.get_color(), linewidth=0)
    axes.set(title=_literal(title), xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    if len(lines) > 1:
        axes.legend()
    with whole_file(path) as file:
        figure.savefig(file, format=path.suffix.lower().lstrip("."), dpi=150)


def _literal(text: str) -> str:
    from slime_store.cli.terminal import one_line

    return one_line(text).replace("$", r"\$")  # not mathematics
