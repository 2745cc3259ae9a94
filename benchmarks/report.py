"""The results as tables on the terminal and in Markdown, and as JSON."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from importlib import metadata
from typing import Any

from benchmarks.measure import Figures
from benchmarks.systems import SYSTEMS

BASE = next(iter(SYSTEMS))
"""What ratios are to."""

_LOADS = ("load_train", "load_batch", "load_one")
_TITLES = {
    "record": "record s",
    "blocked": "blocked s",
    "load_train": "load_train s",
    "load_batch": "load_batch s",
    "load_one": "one sample s",
    "bytes": "MB",
}
_PROCESSOR_TITLES = {"cpu_record": "record", "cpu_load_train": "load_train", "cpu_load_batch": "load_batch"}
_MEMORY_TITLES = {
    "record": "record",
    "record_one": "record one",
    "load_train": "load_train",
    "load_batch": "load_batch",
    "load_one": "load one",
    "walk": "one by one",
}

NOTES = (
    f"In brackets: how many times as fast as {BASE}; load_batch and one sample against its load into samples, which is "
    "what they replace. MB: bytes on disk, in brackets the share of the dump's."
)
MEMORY_NOTES = (
    "Peak extra MB: high-water mark of the resident size above what it was before, in a child process; what is "
    "returned counts. Record one: a rollout of one sample. One by one: going through the rollout, as few samples in "
    "memory as the system can."
)


def ratio(figures: Figures, name: str, column: str) -> float:
    """Return how many times as fast as the dump, or, of bytes, which share of it."""
    base, own = figures[BASE], figures[name]
    if column == "bytes":
        return float(own["bytes"]) / float(base["bytes"])
    against = "load_train" if column.removeprefix("cpu_") in _LOADS else "record"
    against = f"cpu_{against}" if column.startswith("cpu_") else against
    return float(base[against]) / max(float(own[column]), 1e-9)


def time_table(figures: Figures) -> list[list[str]]:
    """Return the rows of one workload's figures, titles first."""
    rows = [["system", *_TITLES.values()]]
    for name, own in figures.items():
        row = [name]
        for column in _TITLES:
            value = f"{own['bytes'] / 1e6:.1f}" if column == "bytes" else _seconds(own[column])
            if BASE in figures:
                row.append(f"{value} ({ratio(figures, name, column):.{2 if column == 'bytes' else 1}f}x)")
            else:
                row.append(value)
        rows.append(row)
    return rows


def processor_table(figures: Figures) -> list[list[str]]:
    """Return the rows of processor seconds of all threads of the process, a database server's not among them."""
    rows = [["processor seconds", *_PROCESSOR_TITLES.values()]]
    for name, own in figures.items():
        if all(column in own for column in _PROCESSOR_TITLES):
            shares = {c: f" ({ratio(figures, name, c):.1f}x)" if BASE in figures else "" for c in _PROCESSOR_TITLES}
            rows.append([name, *(_seconds(own[column]) + shares[column] for column in _PROCESSOR_TITLES)])
    return rows if rows[1:] else []


def memory_table(figures: Figures) -> list[list[str]]:
    """Return the rows of peak extra megabytes, titles first; empty where none were measured."""
    rows = [
        [name, *(f"{own['memory'][key] / 1e6:,.0f}" if key in own["memory"] else "-" for key in _MEMORY_TITLES)]
        for name, own in figures.items()
        if own.get("memory")
    ]
    return [["peak extra MB", *_MEMORY_TITLES.values()], *rows] if rows else []


def render(rows: list[list[str]], *, markdown: bool = False) -> str:
    """Return a table as text, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("| " + " | ".join(cells) + " |" if markdown else "  ".join(cells))
        if markdown and number == 0:
            lines.append("| " + " | ".join("-" * (w - 1) + ":" if i else "-" * w for i, w in enumerate(widths)) + " |")
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Return what figures depend on; no names of hosts or paths."""
    packages = ("torch", "numpy", "sqlalchemy", "zstandard", "psycopg", "pyarrow")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        "packages": {name: version for name in packages if (version := _version(name))},
        "load_average": round(os.getloadavg()[0], 1),
        "command": " ".join(["python -m benchmarks", *sys.argv[1:]]),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _seconds(value: float) -> str:
    return f"{value:.4f}" if value < 0.1 else f"{value:.3f}"
