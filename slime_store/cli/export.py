"""Commands that write rollouts and samples into files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from slime_store.cli.failures import Failure
from slime_store.cli.filters import filter_options
from slime_store.cli.options import (
    attempt_option,
    examples,
    kind_option,
    rollout_ids_option,
    run_option,
    split_names,
)
from slime_store.cli.output import Progress, format_option, write_rows
from slime_store.cli.stores import StoreOpener
from slime_store.cli.terminal import one_line
from slime_store.cli.text import counted

if TYPE_CHECKING:
    from slime_store import SampleFilter
    from slime_store.interchange import ExportedTable

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = ("kind", "rollout_id", "attempt", "n_samples", "path")
_OUT_HELP = "A file; {rollout_id} in it stands for the id, with eval_ before it for an eval. Or a folder."


@click.group()
def export() -> None:
    """Files for other programs."""


@export.command(
    "pt",
    short_help="Write rollouts as dumps that slime loads.",
    epilog=examples(
        "export pt --run qwen3-4b-dapo --rollout-ids 10:20 --out 'out/{rollout_id}.pt'",
        "export pt --run qwen3-4b-dapo --kind eval --out out/",
    ),
)
@run_option
@kind_option("Export only these.")
@rollout_ids_option
@attempt_option
@click.option("--out", required=True, metavar="FILE_OR_TEMPLATE", help=_OUT_HELP)
@format_option
@click.pass_obj
def export_pt_files(
    opener: StoreOpener,
    run_name: str,
    kind: Literal["train", "eval"] | None,
    rollout_ids: str | None,
    attempt: int | None,
    out: str,
    form: str,
) -> None:
    """Write rollouts as dumps that slime's --load-debug-rollout-data reads.

    A file of the same name is replaced.
    """
    from slime_store.interchange.exporting import export_run

    with opener.reading_run(run_name) as run, Progress("exporting") as progress:
        done = export_run(run, out, kind=kind, rollout_ids=rollout_ids, attempt=attempt, progress=progress)
    write_rows(_COLUMNS, done, form)
    for each in done:
        for place in each.replaced:
            why = "only slime_store knows its class; written as plain data"
            click.echo(one_line(f"warning: {each.path}: {place}: {why}"), err=True)


def _table_options(command: F) -> F:
    out = f"{_OUT_HELP} - for stdout, with jsonl and csv."
    fields = (
        "Columns to write beside those that say where a sample was recorded, with commas between them; "
        "docs/interchange.md lists them. By default all but large ones, and in CSV no arrays."
    )
    options = [
        run_option,
        filter_options(),
        click.option("--fields", metavar="NAMES", help=fields),
        click.option("--out", required=True, metavar="FILE_OR_TEMPLATE", help=out),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@export.command(
    "parquet",
    short_help="Write samples as Parquet.",
    epilog=examples(
        "export parquet --run qwen3-4b-dapo --out samples.parquet",
        "export parquet --run qwen3-4b-dapo --fields tokens,loss_mask,reward --out 'out/{rollout_id}.parquet'",
    ),
)
@_table_options
@click.pass_obj
def export_parquet(opener: StoreOpener, run_name: str, where: SampleFilter, fields: str | None, out: str) -> None:
    """Write samples as Parquet: a row each, arrays as lists, dicts as JSON text.

    DuckDB, Polars, pandas, Spark and Hugging Face datasets read it. Needs pyarrow: pip install 'slime-store[parquet]'.
    """
    _export(opener, run_name, where, "parquet", fields, out)


@export.command(
    "jsonl",
    short_help="Write samples as JSON lines.",
    epilog=examples(
        "export jsonl --run qwen3-4b-dapo --rollout-ids 40 --status truncated --out truncated.jsonl",
        "export jsonl --run qwen3-4b-dapo --fields prompt,response,reward --out - | head -3",
    ),
)
@_table_options
@click.pass_obj
def export_jsonl(opener: StoreOpener, run_name: str, where: SampleFilter, fields: str | None, out: str) -> None:
    """Write samples as JSON lines: one object in each line, valid JSON whatever is in them.

    NaN and infinities become the texts "nan", "inf" and "-inf".
    """
    _export(opener, run_name, where, "jsonl", fields, out)


@export.command(
    "csv",
    short_help="Write samples as CSV.",
    epilog=examples(
        "export csv --run qwen3-4b-dapo --kind eval --fields reward,response --out evals.csv",
        "export csv --run qwen3-4b-dapo --csv-safe --out for-a-spreadsheet.csv",
    ),
)
@_table_options
@click.option("--csv-safe", is_flag=True, help="Put ' before text that a spreadsheet would take for a formula.")
@click.pass_obj
def export_csv(
    opener: StoreOpener, run_name: str, where: SampleFilter, fields: str | None, out: str, csv_safe: bool
) -> None:
    """Write samples as CSV (RFC 4180): scalars and texts exactly as they are, unless --csv-safe is given."""
    _export(opener, run_name, where, "csv", fields, out, csv_safe=csv_safe)


def output_of(out: str, form: str) -> Any:
    """Return what ``--out`` names: a path, or stdout."""
    if out != "-":
        return out
    if form == "parquet":
        raise Failure("Parquet needs a file; --out - goes with jsonl and csv", 2)
    return sys.stdout.buffer


def echo_tables(done: Sequence[ExportedTable]) -> None:
    """Say on stderr what was written where."""
    for each in done:
        if each.path != "-":
            click.echo(one_line(f"{each.path}: {counted(each.n_rows, 'rows')}"), err=True)
    if not any(each.n_rows for each in done):
        click.echo("warning: no sample meets the conditions", err=True)


def _export(
    opener: StoreOpener,
    run_name: str,
    where: SampleFilter,
    form: Literal["parquet", "jsonl", "csv"],
    fields: str | None,
    out: str,
    csv_safe: bool = False,
) -> None:
    from slime_store.interchange import export_samples
    from slime_store.interchange.columns import choose

    names = None if fields is None else split_names(fields)
    try:
        choose(names, form)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    target = output_of(out, form)
    with opener.reading_run(run_name) as run, Progress("exporting") as progress:
        shown = progress if progress.wanted else None
        done = export_samples(run, target, where, format=form, fields=names, csv_safe=csv_safe, progress=shown)
    echo_tables(done)
