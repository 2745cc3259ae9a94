"""Commands that write rollouts into files."""

from __future__ import annotations

from typing import Literal

import click

from slime_store.cli.options import kind_option, rollout_ids_option, run_option
from slime_store.cli.output import Progress, format_option, write_rows
from slime_store.cli.stores import StoreOpener

_COLUMNS = ("kind", "rollout_id", "attempt", "n_samples", "path")


@click.group()
def export() -> None:
    """Files for other programs."""


@export.command("pt")
@run_option
@kind_option("Export only these.")
@rollout_ids_option
@click.option("--attempt", type=click.IntRange(1), help="Export this attempt of each, not the newest.")
@click.option(
    "--out",
    required=True,
    metavar="FILE_OR_TEMPLATE",
    help="A file; {rollout_id} in it stands for the id, with eval_ before it for an eval. Or a folder.",
)
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
            click.echo(f"warning: {each.path}: {place}: its class is not available; written as plain data", err=True)
