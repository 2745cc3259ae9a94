"""Commands about rollouts."""

from __future__ import annotations

from typing import Literal

import click

from slime_store.cli.options import kind_option
from slime_store.cli.output import format_option, write_rows
from slime_store.cli.stores import StoreOpener

_COLUMNS = (
    "kind",
    "rollout_id",
    "attempt",
    "status",
    "session",
    "n_groups",
    "n_samples",
    "n_tokens",
    "n_bytes",
    "finished_at",
)


@click.group()
def rollout() -> None:
    """Recorded rollouts."""


@rollout.command("list")
@click.argument("run")
@kind_option("List only these.")
@click.option("--attempts", is_flag=True, help="List every attempt, not the newest of each rollout.")
@format_option
@click.pass_obj
def list_rollouts(
    opener: StoreOpener, run: str, kind: Literal["train", "eval"] | None, attempts: bool, form: str
) -> None:
    """List the rollouts of RUN: training before evals, by id."""
    with opener.reading_run(run) as opened:
        rows = opened.rollouts(kind, attempts=attempts)
    write_rows(_COLUMNS, rows, form)
