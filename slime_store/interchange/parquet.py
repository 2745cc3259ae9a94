"""Rows into Parquet, with a schema that does not depend on the rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from slime_store.errors import MissingPackageError
from slime_store.interchange.columns import Column
from slime_store.interchange.rows import Json

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 4096
GROUP_VALUES = 4_000_000
"""A row group has at most so many rows, and ends after the row that brings its values (entries of lists, characters of
text) to this many: some 32 MB, which is also about what writing holds in memory."""


def import_pyarrow() -> Any:
    """Return pyarrow.

    Raises:
        MissingPackageError: it cannot be imported.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackageError("pyarrow", "parquet", str(error)) from error
    return pyarrow


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema; every column may be null."""
    pa = import_pyarrow()
    int32, float64, text = pa.int32(), pa.float64(), pa.string()
    types = {
        "bool": pa.bool_(),
        "int64": pa.int64(),
        "float64": float64,
        "text": text,
        "json": text,
        "list<text>": pa.list_(text),
        "list<int32>": pa.list_(int32),
        "list<float64>": pa.list_(float64),
        "list<list<list<int32>>>": pa.list_(pa.list_(pa.list_(int32))),
    }
    return pa.schema([pa.field(column.name, types[column.type]) for column in columns])


class ParquetWriter:
    """Writes row groups of bounded size, compressed by zstd.

    Args:
        file: where to write.
        columns: the columns.
    """

    def __init__(self, file: IO[bytes], columns: Sequence[Column]) -> None:
        self._pa = import_pyarrow()
        self._schema = schema_of(columns)
        self._writer = self._pa.parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[list[Any]] = []
        self._n_values = 0

    def write(self, row: Sequence[Any]) -> None:
        """Add a row."""
        cells = [str(value) if isinstance(value, Json) else value for value in row]
        self._rows.append(cells)
        self._n_values += sum(len(cell) for cell in cells if isinstance(cell, (str, list, np.ndarray)))
        if len(self._rows) >= GROUP_ROWS or self._n_values >= GROUP_VALUES:
            self._flush()

    def finish(self) -> None:
        """Write the last row group and the footer."""
        if self._rows:
            self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Let go of a file that is not wanted any more."""
        with suppress(Exception):  # what is written now is deleted; pyarrow would write it later, into a closed file
            self._writer.close()

    def _flush(self) -> None:
        arrays = [
            self._pa.array(values, field.type)
            for field, values in zip(self._schema, zip(*self._rows, strict=True), strict=True)
        ]
        self._writer.write_batch(self._pa.record_batch(arrays, schema=self._schema), row_group_size=len(self._rows))
        self._rows, self._n_values = [], 0
