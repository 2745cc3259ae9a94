"""Rows into CSV and JSON lines."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import IO, Any, Protocol

from slime_store.interchange.rows import Json, as_cell, as_json_line

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_FLUSH_ROWS = 256


class RowWriter(Protocol):
    """Writes rows into an open file, in bounded memory."""

    def write(self, row: Sequence[Any]) -> None:
        """Add a row: a value for each column."""

    def finish(self) -> None:
        """Write what is left; the file stays open."""


class JsonLinesWriter:
    """One JSON object in each physical line, UTF-8."""

    def __init__(self, file: IO[bytes], names: Sequence[str]) -> None:
        self._file = file
        self._names = names

    def write(self, row: Sequence[Any]) -> None:
        """Add a row."""
        self._file.write(as_json_line(self._names, row).encode() + b"\n")

    def finish(self) -> None:
        """Nothing is left."""


class CsvWriter:
    """RFC 4180, UTF-8, with a header.

    Args:
        file: where to write.
        names: of the columns.
        safe: put ``'`` before text that a spreadsheet would take for a formula.
        line_end: of a row; RFC 4180 wants CR LF, shells LF.
    """

    def __init__(self, file: IO[bytes], names: Sequence[str], *, safe: bool = False, line_end: str = "\r\n") -> None:
        self._file = file
        self._safe = safe
        self._buffer = io.StringIO(newline="")
        self._writer = csv.writer(self._buffer, lineterminator=line_end)
        self._writer.writerow([as_cell(name) for name in names])
        self._n_rows = 0

    def write(self, row: Sequence[Any]) -> None:
        """Add a row."""
        cells = [as_cell(value) for value in row]
        if self._safe:
            cells = [
                "'" + cell if isinstance(value, (str, Json)) and cell.startswith(_FORMULA) else cell
                for cell, value in zip(cells, row, strict=True)
            ]
        self._writer.writerow(cells)
        self._n_rows += 1
        if self._n_rows % _FLUSH_ROWS == 0:
            self._flush()

    def finish(self) -> None:
        """Write what is left."""
        self._flush()

    def _flush(self) -> None:
        self._file.write(self._buffer.getvalue().encode())
        self._buffer.seek(0)
        self._buffer.truncate()
