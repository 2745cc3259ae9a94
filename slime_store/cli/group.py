"""Commands about groups, and about prompts over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slime_store.cli.filters import filter_options
from slime_store.cli.options import columns_option, examples, run_argument
from slime_store.cli.output import format_option, limit_option, write_frame
from slime_store.cli.stores import StoreOpener

if TYPE_CHECKING:
    from slime_store import SampleFilter

_GROUPS = (
    "kind",
    "rollout_id",
    "dataset",
    "group_position",
    "group_index",
    "n_samples",
    "reward_mean",
    "reward_std",
    "zero_std",
    "truncated_share",
    "response_length_mean",
    "prompt_id",
)
_PROMPTS = (
    "prompt_id",
    "kind",
    "rollout_id",
    "dataset",
    "weight_version",
    "n_samples",
    "reward_mean",
    "reward_std",
    "truncated_share",
    "response_length_mean",
)


@click.group()
def group() -> None:
    """The samples of one prompt in one rollout."""


@group.command(
    "list",
    short_help="List the groups of a run with their rewards.",
    epilog=examples(
        "group list qwen3-4b-dapo --kind train --zero-std",
        "group list qwen3-4b-dapo --rollout-ids 40 --format csv",
    ),
)
@run_argument
@click.option("--zero-std", is_flag=True, help="Only groups whose rewards are all equal, which teach GRPO nothing.")
@filter_options()
@columns_option("aggregates:GROUPS", with_pass_at=True)
@limit_option
@format_option
@click.pass_obj
def list_groups(
    opener: StoreOpener,
    run_name: str,
    zero_std: bool,
    where: SampleFilter,
    columns: list[str] | None,
    limit: int | None,
    form: str,
) -> None:
    """List the groups of RUN with their rewards; in an eval, a prompt is a group. Conditions choose samples."""
    from slime_store.dataframes import groups_df

    wanted = list(columns or _GROUPS)
    with opener.reading_run(run_name) as run:
        frame = groups_df(run, where, columns=list(dict.fromkeys([*wanted, "zero_std"])))
    if zero_std:
        frame = frame[frame["zero_std"].fillna(False)]
    write_frame(frame[wanted], form, limit)


@click.group()
def prompt() -> None:
    """Prompts over the course of a run."""


@prompt.command(
    "list",
    epilog=examples(
        "prompt list qwen3-4b-dapo --kind train --prompt-id 4f1c0a9be2d35768",
        "prompt list qwen3-4b-dapo --prompt 'What is 6 * 7?'",
    ),
)
@run_argument
@filter_options()
@columns_option("aggregates:PROMPTS")
@limit_option
@format_option
@click.pass_obj
def list_prompts(
    opener: StoreOpener, run_name: str, where: SampleFilter, columns: list[str] | None, limit: int | None, form: str
) -> None:
    """List how each prompt of RUN did, rollout after rollout. Conditions choose samples."""
    from slime_store.dataframes import prompts_df

    with opener.reading_run(run_name) as run:
        frame = prompts_df(run, where, columns=columns or _PROMPTS)
    write_frame(frame, form, limit)
