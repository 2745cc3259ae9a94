"""Options and arguments that several commands have."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click

from slime_store.cli.stores import StoreOpener

F = TypeVar("F", bound=Callable[..., Any])

LAST_ID = 2**63 - 1
rollout_id_type = click.IntRange(-LAST_ID - 1, LAST_ID)
"""What a column of ids holds; for arguments that are the id of a rollout."""


def examples(*lines: str) -> str:
    """Return the epilog of a command: command lines, without ``slime-store``, that show its use."""
    return "\b\nExamples:\n" + "\n".join(f"  slime-store {line}" for line in lines)


def _complete_runs(ctx: click.Context, _param: click.Parameter, beginning: str) -> list[str]:
    """Return the runs of the store that the command line, or the environment, names; none where it cannot be read."""
    with suppress(Exception), StoreOpener(ctx.find_root().params.get("url")).reading() as store:
        return [info.name for info in store.runs() if info.name.startswith(beginning)]
    return []


def _run_name(_ctx: click.Context, _option: click.Parameter, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter("the name of a run is UTF-8") from None
    if not value:
        raise click.BadParameter("the name of a run is not empty")
    return value


run_option = click.option(
    "--run",
    "run_name",
    required=True,
    metavar="RUN",
    callback=_run_name,
    shell_complete=_complete_runs,
    help="Name of the run.",
)
run_argument = click.argument("run_name", metavar="RUN", callback=_run_name, shell_complete=_complete_runs)
show_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="For people, or for programs.",
)


def kind_option(help: str, default: str | None = None) -> Callable[[F], F]:
    """Return the option ``--kind``."""
    return click.option(
        "--kind", type=click.Choice(["train", "eval"]), default=default, show_default=default is not None, help=help
    )


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
attempt_option = click.option(
    "--attempt", type=click.IntRange(1, LAST_ID), metavar="N", help="This attempt, not the newest."
)


def split_names(text: str) -> list[str]:
    """Return the names between commas; a JSON list after a dot, as in ``reward.["nest", "x"]``, is one piece."""
    names, start, at = [], 0, 0
    while at < len(text):
        if text[at] == ",":
            names.append(text[start:at].strip())
            start = at + 1
        elif text[at] == "[" and text[at - 1 : at] == ".":
            with suppress(ValueError):
                at = json.JSONDecoder().raw_decode(text, at)[1] - 1
        at += 1
    return [*names, text[start:].strip()]


def columns_option(frame: str, *, with_pass_at: bool = False) -> Callable[[F], F]:
    """Return the option ``--columns``.

    Args:
        frame: the declaration of the data frame, ``"module:NAME"`` in ``slime_store.dataframes.declared``.
        with_pass_at: the frame has columns of pass@k.
    """

    def names(ctx: click.Context, _option: click.Parameter, value: str | None) -> list[str] | None:
        if value is None or ctx.resilient_parsing:
            return None
        module, _, name = frame.partition(":")
        declared = getattr(importlib.import_module(f"slime_store.dataframes.declared.{module}"), name)
        given = split_names(value)
        try:
            if with_pass_at:
                from slime_store.dataframes.evals import choose_with_pass_at

                return [column.name for column in choose_with_pass_at(declared, (), given)[0]]
            return [column.name for column in declared.choose(given)]
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    help = "Columns to print, with commas between them; docs/dataframes.md lists them."
    return click.option("--columns", metavar="NAMES", callback=names, help=help)
