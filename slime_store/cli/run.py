"""Commands about runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from slime_store.cli.confirming import confirm, yes_option
from slime_store.cli.options import examples, run_argument, show_format_option
from slime_store.cli.output import format_option, limit_option, write_rows
from slime_store.cli.stores import StoreOpener

if TYPE_CHECKING:
    from slime_store import Run

_SESSION_COLUMNS = ("session", "started_at", "host", "pid", "n_rollouts", "checkpoint_rollout_id")
_VERSION_COLUMNS = (
    "session",
    "weight_version",
    "n_samples",
    "reward_mean",
    "truncated_share",
    "response_length_mean",
    "last_rollout_id",
)
_LAST_VERSIONS = 8


@click.group()
def run() -> None:
    """Training runs."""


@dataclass(frozen=True)
class _Row:
    run: str
    created_at: datetime
    n_rollouts: int


@run.command("list", epilog=examples("run list", "run list --format json"))
@limit_option
@format_option
@click.pass_obj
def list_runs(opener: StoreOpener, limit: int | None, form: str) -> None:
    """List the runs, oldest first."""
    with opener.reading() as store:
        rows = [_Row(info.name, info.created_at, info.n_rollouts) for info in store.runs()]
    write_rows(["run", "created_at", "n_rollouts"], rows, form, limit)


@run.command(
    "show",
    short_help="Show one run: its size, config, sessions and newest rewards.",
    epilog=examples("run show qwen3-4b-dapo", "run show qwen3-4b-dapo --format json"),
)
@run_argument
@show_format_option
@click.pass_obj
def show_run(opener: StoreOpener, run_name: str, form: str) -> None:
    """Show what RUN is, how much it holds, who wrote to it, and how its newest weight versions did in training."""
    from slime_store.cli.text import echo, write_json

    with opener.reading_run(run_name) as opened:
        facts = _facts(opened)
    if form == "json":
        write_json(facts)
    else:
        echo(_lines(facts))


@run.command(
    "delete",
    short_help="Delete a run with all of its rollouts.",
    epilog=examples("run delete qwen3-4b-dapo --yes"),
)
@run_argument
@yes_option
@click.pass_obj
def delete_run(opener: StoreOpener, run_name: str, yes: bool) -> None:
    """Delete RUN for good, with every rollout, also pinned ones. Asks for the name of the run, or for --yes.

    What other runs share stays. Interrupted, it is gone on with by running it again. `db prune --vacuum` gives the
    space back to the file system.
    """
    from slime_store.cli.text import counted

    with opener.writing() as store:
        infos = store.run(run_name, create=False).rollouts()
        size = f"{counted(len(infos), 'rollouts')}, {counted(sum(info.n_samples for info in infos), 'samples')}"
        confirm(f"run {run_name!r} with {size}", run_name, yes=yes)
        n_deleted = store.delete_run(run_name)
    click.echo(f"deleted run {run_name!r}: {counted(n_deleted, 'recordings')}", err=True)


def _facts(opened: Run) -> dict[str, Any]:
    from slime_store import SampleFilter
    from slime_store.cli.text import records
    from slime_store.dataframes import weight_versions_df

    info = opened.info()
    rollouts = opened.rollouts()
    counts = {}
    for kind in ("train", "eval"):
        some = [each for each in rollouts if each.kind == kind]
        counts[kind] = {
            "n_rollouts": len(some),
            "first_rollout_id": some[0].rollout_id if some else None,
            "last_rollout_id": some[-1].rollout_id if some else None,
            **{name: sum(getattr(each, name) for each in some) for name in ("n_samples", "n_tokens", "n_bytes")},
        }
    frame = weight_versions_df(opened, SampleFilter(kind="train"), columns=_VERSION_COLUMNS)
    return {
        "run": info.name,
        "created_at": info.created_at,
        **counts,
        "config": info.config,
        "sessions": [asdict(each) for each in opened.sessions()],
        "weight_versions": records(frame),
    }


def _lines(run: dict[str, Any]) -> Iterator[str]:
    from slime_store.cli.terminal import terminal_width
    from slime_store.cli.text import MOST_ENTRIES, document, facts, heading, section, table

    width = terminal_width()
    yield heading(f"run {run['run']}")
    yield from facts([("created", run["created_at"]), ("train", _amount(run["train"])), ("eval", _amount(run["eval"]))])
    if run["config"] is not None:
        yield from section("config", width)
        yield from document(run["config"], width, most=MOST_ENTRIES)
    if run["sessions"]:
        yield from section("sessions", width)
        yield from table(_SESSION_COLUMNS, [[row[name] for name in _SESSION_COLUMNS] for row in run["sessions"]], width)
    versions = run["weight_versions"]
    if versions:
        last = versions[-_LAST_VERSIONS:]
        more = f", last {len(last)} of {len(versions)}" if len(last) < len(versions) else ""
        yield from section(f"training reward by weight version{more}", width)
        yield from table(_VERSION_COLUMNS, [list(row.values()) for row in last], width)


def _amount(counts: dict[str, Any]) -> str:
    from slime_store.cli.text import counted

    if not counts["n_rollouts"]:
        return "no rollouts"
    span = f"{counts['first_rollout_id']} to {counts['last_rollout_id']}"
    parts = [f"{counted(counts['n_rollouts'], 'rollouts')} ({span})"]
    parts += [counted(counts["n_samples"], "samples"), counted(counts["n_tokens"], "tokens")]
    return ", ".join([*parts, f"{counts['n_bytes'] / 1e6:,.1f} MB"])
