"""Samples and data frames into Parquet, JSON lines and CSV."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Literal

from slime_store.config import refuse_address
from slime_store.errors import ExportError
from slime_store.interchange.columns import SKIPPED, Column, attributes_of, choose, is_array
from slime_store.interchange.files import TEMPLATE, is_folder, path_of, whole_file
from slime_store.interchange.parquet import ParquetWriter, import_pyarrow
from slime_store.interchange.rows import RowMaker
from slime_store.interchange.writers import CsvWriter, JsonLinesWriter, RowWriter
from slime_store.store import Run, SampleStore
from slime_store.store.diagnosis import damage_named
from slime_store.store.located import count_samples, iter_located
from slime_store.types import LocatedSample, Sample, SampleFilter

Format = Literal["parquet", "jsonl", "csv"]
FORMATS: tuple[Format, ...] = ("parquet", "jsonl", "csv")
_PAGE, _PAGE_WITH_ARRAYS = 256, 32  # samples in memory at a time; 100,000 tokens each are not rare


@dataclass(frozen=True)
class ExportedTable:
    """One file of rows that was written.

    Attributes:
        path: the file; "-" for a stream.
        n_rows: its rows.
    """

    path: str
    n_rows: int


@damage_named
def export_samples(
    source: Run | SampleStore,
    target: str | os.PathLike[str] | IO[bytes],
    where: SampleFilter | None = None,
    *,
    format: Format = "parquet",
    fields: Collection[str] | None = None,
    csv_safe: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[ExportedTable]:
    """Write samples as rows: where each was recorded, and its fields. ``docs/interchange.md`` has the columns.

    The columns and their types depend on ``fields`` alone, never on the samples; a file without rows has them too. A
    file appears whole or not at all, and replaces one of its name. Memory stays at a few dozen samples and one row
    group, however many are written.

    Args:
        source: a run, or a store for all of its runs.
        target: a file; a name with ``{rollout_id}`` in it, or a folder, for one file for each rollout, in which case
            ``source`` is a run; or an open binary stream (not for Parquet).
        where: which samples; None: all of the newest attempts.
        format: "parquet" (needs pyarrow: ``pip install slime-store[parquet]``), "jsonl" or "csv".
        fields: names of columns, beside those of the place; None: all but large ones, and in CSV no arrays.
        csv_safe: put ``'`` before text in CSV that a spreadsheet would take for a formula; else text is exact.
        progress: called after each sample with how many are done and how many there are.

    Returns:
        the files, in order; none where a template meets no sample.

    Raises:
        ValueError: there is no such format or column.
        ExportError: a file cannot be written; no half of it is left.
        MissingPackageError: pyarrow is not installed.
    """
    refuse_address(target)
    columns = choose(fields, checked_format(format))
    if format == "parquet":
        import_pyarrow()
    total = count_samples(source, where) if progress is not None else 0
    done: list[ExportedTable] = []
    n_done = 0
    samples = iter_located(
        source,
        where,
        fields=attributes_of(columns),
        without=SKIPPED - {column.attribute for column in columns},
        batch_size=_PAGE_WITH_ARRAYS if any(map(is_array, columns)) else _PAGE,
        sample_type=Sample,
    )
    maker = RowMaker(columns)
    for file, rows in _files(source, target, samples, format):
        with _opened(file, columns, format, csv_safe) as writer:
            n_rows = 0
            for located in rows:
                writer.write(maker.row(located))
                n_rows += 1
                n_done += 1
                if progress is not None:
                    progress(n_done, total)
        done.append(ExportedTable(os.fspath(file) if isinstance(file, Path) else "-", n_rows))
    return done


def _files(
    source: Run | SampleStore, target: Any, samples: Iterator[LocatedSample], format: Format
) -> Iterator[tuple[Path | IO[bytes], Iterator[LocatedSample]]]:
    if hasattr(target, "write"):
        if format == "parquet":
            raise ExportError("a stream", "Parquet needs a file")
        yield target, samples
    elif TEMPLATE not in os.fspath(target) and not is_folder(target):
        yield Path(target), samples
    elif not isinstance(source, Run):
        raise ExportError(os.fspath(target), f"a name with {TEMPLATE} needs one run, not a store")
    else:
        for (kind, rollout_id), rows in groupby(samples, key=lambda each: (each.place.kind, each.place.rollout_id)):
            yield path_of(target, kind, rollout_id, f".{format}"), rows


@contextmanager
def _opened(file: Path | IO[bytes], columns: Sequence[Column], format: Format, csv_safe: bool) -> Iterator[RowWriter]:
    if format != "parquet":
        with opened_lines(file, [column.name for column in columns], format, csv_safe) as writer:
            yield writer
        return
    assert isinstance(file, Path)
    with whole_file(file) as stream:
        parquet = ParquetWriter(stream, columns)
        try:
            yield parquet
            parquet.finish()
        except BaseException:
            parquet.abandon()
            raise


@contextmanager
def opened_lines(file: Path | IO[bytes], names: Sequence[str], format: Format, csv_safe: bool) -> Iterator[RowWriter]:
    """Open a file, or take an open stream, for rows in "jsonl" or "csv"."""
    with whole_file(file) if isinstance(file, Path) else nullcontext(file) as stream:
        writer: RowWriter
        writer = JsonLinesWriter(stream, names) if format == "jsonl" else CsvWriter(stream, names, safe=csv_safe)
        yield writer
        writer.finish()


def checked_format(format: str) -> Format:
    """Return the name of a format; ValueError where it is none."""
    for known in FORMATS:
        if format == known:
            return known
    raise ValueError(f"format is {', '.join(map(repr, FORMATS))}, not {format!r}")
