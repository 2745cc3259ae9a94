"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

run_option = click.option("--run", "run_name", required=True, metavar="RUN", help="Name of the run.")


def kind_option(help: str) -> Callable[[F], F]:
    """Return the option ``--kind``."""
    return click.option("--kind", type=click.Choice(["train", "eval"]), help=help)


def _rollout_ids(_ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    from slime_store.types import SampleFilter

    try:
        SampleFilter(rollout_ids=value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


rollout_ids_option = click.option(
    "--rollout-ids",
    metavar="IDS",
    callback=_rollout_ids,
    help='An id such as "7", or a range such as "10:20" (without 20), "10:" or ":20".',
)
