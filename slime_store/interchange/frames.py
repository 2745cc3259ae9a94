"""Data frames into Parquet, JSON lines and CSV."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from slime_store.config import refuse_address
from slime_store.errors import ExportError
from slime_store.interchange.files import whole_file
from slime_store.interchange.parquet import GROUP_ROWS, import_pyarrow
from slime_store.interchange.tables import ExportedTable, Format, checked_format, opened_lines

if TYPE_CHECKING:
    import pandas as pd


def export_frame(
    frame: pd.DataFrame,
    target: str | os.PathLike[str] | IO[bytes],
    format: Format = "parquet",
    *,
    csv_safe: bool = False,
) -> ExportedTable:
    """Write any data frame, without its index; what is missing in it becomes null, or an empty cell in CSV.

    Types in Parquet are the frame's, so a frame of ``slime_store.dataframes`` without rows has them too. A file appears
    whole or not at all, and replaces one of its name.

    Args:
        frame: the frame; the names of its columns are text.
        target: a file, or an open binary stream (not for Parquet).
        format: "parquet" (needs pyarrow: ``pip install slime-store[parquet]``), "jsonl" or "csv".
        csv_safe: as for ``export_samples``.

    Raises:
        ValueError: there is no such format.
        ExportError: the file cannot be written, or Parquet has no type for a column.
        MissingPackageError: pyarrow is not installed.
    """
    refuse_address(target)
    path = "-" if hasattr(target, "write") else os.fspath(target)
    if checked_format(format) == "parquet":
        pa = import_pyarrow()
        if path == "-":
            raise ExportError("a stream", "Parquet needs a file")
        try:
            table = pa.Table.from_pandas(frame, preserve_index=False)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ExportError(path, f"the frame has values that Parquet has no type for: {error}") from error
        with whole_file(Path(path)) as file:
            pa.parquet.write_table(table, file, compression="zstd", row_group_size=16 * GROUP_ROWS)
    else:
        stream: Any = target if path == "-" else Path(path)
        with opened_lines(stream, [str(name) for name in frame.columns], format, csv_safe) as writer:
            for row in _rows(frame):
                writer.write(row)
    return ExportedTable(path, len(frame))


def _rows(frame: pd.DataFrame) -> Iterator[list[Any]]:
    step = 4096
    for start in range(0, len(frame), step):
        part = frame.iloc[start : start + step]
        missing = part.isna().to_numpy()
        columns = [part.iloc[:, i].tolist() for i in range(part.shape[1])]
        for number, row in enumerate(zip(*columns, strict=True)):
            yield [None if gone else value for value, gone in zip(row, missing[number], strict=True)]
