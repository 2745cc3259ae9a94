"""Commands about runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import click

from slime_store.cli.output import format_option, write_rows
from slime_store.cli.stores import StoreOpener


@click.group()
def run() -> None:
    """Training runs."""


@dataclass(frozen=True)
class _Row:
    run: str
    created_at: datetime
    n_rollouts: int


@run.command("list")
@format_option
@click.pass_obj
def list_runs(opener: StoreOpener, form: str) -> None:
    """List the runs, oldest first."""
    with opener.reading() as store:
        rows = [_Row(info.name, info.created_at, info.n_rollouts) for info in store.runs()]
    write_rows(["run", "created_at", "n_rollouts"], rows, form)
