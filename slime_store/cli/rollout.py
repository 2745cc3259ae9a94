"""Commands about rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import click

from slime_store.cli.confirming import confirm, yes_option
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
from slime_store.cli.output import format_option, limit_option, write_frame, write_rows
from slime_store.cli.stores import StoreOpener

if TYPE_CHECKING:
    from slime_store import Run

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
_GROUP_COLUMNS = (
    "dataset",
    "group_position",
    "group_index",
    "n_samples",
    "reward_mean",
    "reward_std",
    "reward_min",
    "reward_max",
    "zero_std",
    "truncated_share",
    "response_length_mean",
)
_MOST_GROUPS = 40


@click.group()
def rollout() -> None:
    """Recorded rollouts."""


@rollout.command(
    "list",
    epilog=examples(
        "rollout list qwen3-4b-dapo --kind eval",
        "rollout list qwen3-4b-dapo --columns rollout_id,n_samples,metrics.raw_reward --limit 0",
    ),
)
@run_argument
@kind_option("List only these.")
@click.option("--attempts", is_flag=True, help="List every attempt, not the newest of each rollout.")
@columns_option("aggregates:ROLLOUTS")
@limit_option
@format_option
@click.pass_obj
def list_rollouts(
    opener: StoreOpener,
    run_name: str,
    kind: Literal["train", "eval"] | None,
    attempts: bool,
    columns: list[str] | None,
    limit: int | None,
    form: str,
) -> None:
    """List the rollouts of RUN: training before evals, by id. A column `metrics.NAME` is a metric that is a number."""
    if columns is not None and attempts:
        raise click.UsageError("--columns lists the newest attempts; leave --attempts out")
    with opener.reading_run(run_name) as opened:
        if columns is not None:
            from slime_store import SampleFilter
            from slime_store.dataframes import rollouts_df

            write_frame(rollouts_df(opened, SampleFilter(kind=kind), columns=columns), form, limit)
            return
        rows = opened.rollouts(kind, attempts=attempts)
    write_rows(_COLUMNS, rows, form, limit)


@rollout.command(
    "show",
    short_help="Show one rollout: metrics, statuses, and the rewards of each group.",
    epilog=examples(
        "rollout show qwen3-4b-dapo 40",
        "rollout show qwen3-4b-dapo 40 --kind eval --format json",
    ),
)
@run_argument
@click.argument("rollout_id", type=rollout_id_type)
@kind_option("A training rollout, or an eval.", default="train")
@attempt_option
@show_format_option
@click.pass_obj
def show_rollout(
    opener: StoreOpener,
    run_name: str,
    rollout_id: int,
    kind: Literal["train", "eval"],
    attempt: int | None,
    form: str,
) -> None:
    """Show one rollout of RUN: its metrics, what became of its samples, and the rewards of each group.

    The groups of an eval are its prompts. A group whose rewards are all equal teaches GRPO nothing: zero_std.
    """
    from slime_store.cli.text import echo, write_json

    with opener.reading_run(run_name) as opened:
        found = _facts(opened, rollout_id, kind, attempt)
    if form == "json":
        write_json(found)
    else:
        echo(_lines(found))


_rollout_id_argument = click.argument("rollout_id", type=rollout_id_type)
_kind_option = kind_option("A training rollout, or an eval.", default="train")


@rollout.command(
    "pin",
    short_help="Keep pruning from touching a rollout.",
    epilog=examples(
        'rollout pin qwen3-4b-dapo 40 --note "the baseline in the report"',
        "rollout pin qwen3-4b-dapo 100 --kind eval",
    ),
)
@run_argument
@_rollout_id_argument
@_kind_option
@click.option("--note", metavar="TEXT", help="Why.")
@click.pass_obj
def pin_rollout(
    opener: StoreOpener, run_name: str, rollout_id: int, kind: Literal["train", "eval"], note: str | None
) -> None:
    """Keep `db prune` from touching a rollout of RUN: every attempt of it, also later ones. Again: change the note."""
    with opener.writing() as store:
        store.run(run_name, create=False).pin(rollout_id, kind=kind, note=note)
    click.echo(f"pinned {kind} rollout {rollout_id} of run {run_name!r}", err=True)


@rollout.command(
    "unpin",
    short_help="Let pruning take a rollout again.",
    epilog=examples("rollout unpin qwen3-4b-dapo 40"),
)
@run_argument
@_rollout_id_argument
@_kind_option
@click.pass_obj
def unpin_rollout(opener: StoreOpener, run_name: str, rollout_id: int, kind: Literal["train", "eval"]) -> None:
    """Take the pin of a rollout of RUN away, so that `db prune` may take its arrays."""
    with opener.writing() as store:
        was_pinned = store.run(run_name, create=False).unpin(rollout_id, kind=kind)
    what = "unpinned" if was_pinned else "there was no pin on"
    click.echo(f"{what} {kind} rollout {rollout_id} of run {run_name!r}", err=True)


@rollout.command(
    "delete",
    short_help="Delete a rollout, or one attempt of it.",
    epilog=examples(
        "rollout delete qwen3-4b-dapo 40 --yes",
        "rollout delete qwen3-4b-dapo 100 --kind eval --attempt 1 --yes",
    ),
)
@run_argument
@_rollout_id_argument
@_kind_option
@click.option("--attempt", type=click.IntRange(1, LAST_ID), metavar="N", help="Only this attempt, not all of them.")
@yes_option
@click.pass_obj
def delete_rollout(
    opener: StoreOpener,
    run_name: str,
    rollout_id: int,
    kind: Literal["train", "eval"],
    attempt: int | None,
    yes: bool,
) -> None:
    """Delete a rollout of RUN for good, with every attempt, also a pinned one. Asks for its id, or for --yes.

    What other rollouts share stays. A run that resumes cannot go on behind a rollout that is gone.
    """
    from slime_store.cli.text import counted

    with opener.writing() as store:
        opened = store.run(run_name, create=False)
        n_samples = opened.rollout(rollout_id, kind=kind, attempt=attempt).n_samples
        which = (
            f"{kind} rollout {rollout_id}" if attempt is None else f"attempt {attempt} of {kind} rollout {rollout_id}"
        )
        what = f"{which} of run {run_name!r} with {counted(n_samples, 'samples')}"
        confirm(what, str(rollout_id), yes=yes)
        n_deleted = opened.delete_rollout(rollout_id, kind=kind, attempt=attempt)
    click.echo(f"deleted {counted(n_deleted, 'attempts')} of {kind} rollout {rollout_id} of run {run_name!r}", err=True)


def _facts(opened: Run, rollout_id: int, kind: Literal["train", "eval"], attempt: int | None) -> dict[str, Any]:
    from slime_store import SampleFilter
    from slime_store.cli.text import records
    from slime_store.dataframes import groups_df, samples_df

    info = opened.rollout(rollout_id, kind=kind, attempt=attempt)
    where = SampleFilter(kind=kind, rollout_ids=rollout_id, attempt=info.attempt)
    samples = samples_df(opened, where, columns=["status", "weight_version", "reward", "reward_type"])
    return {
        **asdict(info),
        "statuses": dict(Counter(samples["status"])),
        "weight_versions": {str(name): n for name, n in Counter(samples["weight_version"].dropna()).items()},
        "rewards": {
            name: None if value is None or value != value else value
            for name, value in (
                ("mean", samples["reward"].mean()),
                ("std", samples["reward"].std()),
                ("min", samples["reward"].min()),
                ("max", samples["reward"].max()),
            )
        },
        "reward_types": dict(Counter(samples["reward_type"])),
        "groups": records(groups_df(opened, where, columns=_GROUP_COLUMNS)),
    }


def _lines(found: dict[str, Any]) -> Iterator[str]:
    from slime_store.cli.output import cell_text
    from slime_store.cli.terminal import terminal_width
    from slime_store.cli.text import counted, document, facts, heading, section, table

    width = terminal_width()
    rewards = found["rewards"]
    shown = [f"{name} {cell_text(value)}" for name, value in rewards.items() if value is not None]
    types = found["reward_types"]
    others = [f"{n} {name}" for name, n in types.items() if name not in ("float", "int", "bool")]
    groups_of = f" in {counted(found['n_groups'], 'groups')}" if found["kind"] == "train" else ""
    yield heading(f"{found['kind']} rollout {found['rollout_id']}, run {found['run']}")
    yield from facts(
        [
            ("attempt", f"{found['attempt']}, session {found['session']}, {found['status']}"),
            ("recorded", found["finished_at"]),
            ("samples", f"{found['n_samples']:,}{groups_of}, {counted(found['n_tokens'], 'tokens')}"),
            ("statuses", _counts(found["statuses"])),
            ("versions", _counts(found["weight_versions"]) or None),
            ("reward", ", ".join([*shown, *(["; ".join(others)] if others else [])]) or None),
            ("placeholders", "; ".join(found["placeholders"]) or None),
        ]
    )
    if found["metrics"]:
        yield from section("metrics", width)
        yield from document(found["metrics"], width)
    groups = found["groups"]
    if groups:
        left_out = {name for name in ("dataset", "group_position", "group_index") if groups[0][name] is None}
        names = [name for name in _GROUP_COLUMNS if name not in left_out]
        n_equal = sum(bool(group["zero_std"]) for group in groups)
        what = "groups" if found["kind"] == "train" else "prompts"
        yield from section(f"{counted(len(groups), what)}, {n_equal} with equal rewards", width)
        yield from table(names, [[group[name] for name in names] for group in groups[:_MOST_GROUPS]], width)
        if len(groups) > _MOST_GROUPS:
            yield f"… {len(groups) - _MOST_GROUPS} more; `slime-store group list` or --format json shows all"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts.items())
