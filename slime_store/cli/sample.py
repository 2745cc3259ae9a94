"""Commands about samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from slime_store.cli.filters import filter_options
from slime_store.cli.options import (
    LAST_ID,
    attempt_option,
    columns_option,
    examples,
    kind_option,
    rollout_id_type,
    run_argument,
    show_format_option,
)
from slime_store.cli.output import format_option, limit_option, row_limit, write_frame
from slime_store.cli.stores import StoreOpener

if TYPE_CHECKING:
    from slime_store import SampleFilter

_COLUMNS = (
    "kind",
    "rollout_id",
    "position",
    "dataset",
    "group_index",
    "index",
    "status",
    "reward",
    "weight_version",
    "response_length",
)


@click.group()
def sample() -> None:
    """Single samples."""


@sample.command(
    "list",
    short_help="List the samples that meet conditions.",
    epilog=examples(
        "sample list qwen3-4b-dapo --rollout-ids 40 --status truncated",
        "sample list qwen3-4b-dapo --reward-min 1 --metadata source=aime --columns rollout_id,position,reward,response",
        "sample list qwen3-4b-dapo --kind eval --format csv --columns dataset,reward,metadata.difficulty",
        "sample list qwen3-4b-dapo --sort response_length --desc --limit 10",
    ),
)
@run_argument
@filter_options()
@click.option("--sort", metavar="COLUMN", help="Sort by this column, the lowest first; reads all that are found.")
@click.option("--desc", is_flag=True, help="With --sort: the highest first.")
@columns_option("samples:SAMPLES")
@limit_option
@format_option
@click.pass_obj
def list_samples(
    opener: StoreOpener,
    run_name: str,
    where: SampleFilter,
    sort: str | None,
    desc: bool,
    columns: list[str] | None,
    limit: int | None,
    form: str,
) -> None:
    """List the samples of RUN that meet every condition: training before evals, by rollout, in their order.

    `sample show RUN ROLLOUT_ID POSITION` shows one of them whole.
    """
    from slime_store.dataframes import samples_df
    from slime_store.store.located import count_samples

    most = row_limit(limit, form)
    names = list(columns or _COLUMNS)
    if sort is not None and sort not in names:
        raise click.UsageError(f"--sort {sort}: it is not among the columns, which are {', '.join(names)}")
    n_more = 0
    with opener.reading_run(run_name) as run:
        frame = samples_df(run, where, columns=names, limit=None if sort else most)
        if sort is None and most is not None and len(frame) >= most:
            n_more = count_samples(run, where) - len(frame)
    if sort is not None:
        frame = frame.sort_values(sort, ascending=not desc, kind="stable")
    if columns is None and form == "table":
        frame = frame.drop(columns=[name for name in ("dataset", "group_index") if frame[name].isna().all()])
    write_frame(frame, form, limit, n_more)


@sample.command(
    "show",
    short_help="Show one sample: prompt, response, and its log-probs.",
    epilog=examples(
        "sample show qwen3-4b-dapo 40 17",
        "sample show qwen3-4b-dapo 40 3 --kind eval --tokens",
        "sample show qwen3-4b-dapo 40 17 --format json",
    ),
)
@run_argument
@click.argument("rollout_id", type=rollout_id_type)
@click.argument("position", type=click.IntRange(0, LAST_ID))
@kind_option("Of a training rollout, or of an eval.", default="train")
@attempt_option
@click.option("--tokens", is_flag=True, help="Show the token ids.")
@show_format_option
@click.pass_obj
def show_sample(
    opener: StoreOpener,
    run_name: str,
    rollout_id: int,
    position: int,
    kind: Literal["train", "eval"],
    attempt: int | None,
    tokens: bool,
    form: str,
) -> None:
    """Show one sample: what it was asked, what it said, and how sure it was of each token.

    POSITION is its place in the rollout, from 0, as `sample list` prints it. Each block of the strip of log-probs is
    one response token, or several where they are many, and then the least likely of them counts; a full block is a
    probability near 1. On a terminal, unlikely tokens are red, and tokens outside the loss mask dim.
    """
    from slime_store.cli.sample_view import sample_json, sample_lines
    from slime_store.cli.terminal import terminal_width
    from slime_store.errors import ArraysPrunedError
    from slime_store.interchange.columns import LIGHT
    from slime_store.store.located import load_sample
    from slime_store.types import Sample

    which: dict[str, Any] = {"kind": kind, "attempt": attempt, "sample_type": Sample}
    with opener.reading_run(run_name) as run:
        pruned = False
        try:
            found = load_sample(run, rollout_id, position, **which)
        except ArraysPrunedError as error:
            click.echo(f"warning: {str(error).partition('; ')[0]}; they are not shown", err=True)
            found = load_sample(run, rollout_id, position, fields=LIGHT, **which)
            pruned = True
    if form == "json":
        click.echo(sample_json(found))
    else:
        for line in sample_lines(found, terminal_width(), tokens=tokens, pruned=pruned):
            click.echo(line)
