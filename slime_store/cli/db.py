"""Commands about the database: its state, checking, copying and keeping it small."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from slime_store.cli.output import Progress, format_option, write_rows
from slime_store.cli.stores import StoreOpener
from slime_store.cli.text import counted

if TYPE_CHECKING:
    from slime_store.types import Problem

_CANNOT_BE_USED = ("newer", "foreign", "damaged", "unreachable")
_PROBLEM_COLUMNS = ("code", "run", "kind", "rollout_id", "attempt", "samples", "fixable", "fixed", "what")


@dataclass(frozen=True)
class _Fact:
    name: str
    value: Any


def _write_report(report: Any, form: str) -> None:
    """Print one record: for people a line for each field, else one row."""
    fields = asdict(report)
    if form == "table":
        write_rows(("name", "value"), [_Fact(name, _shown(value)) for name, value in fields.items()], form)
    else:
        write_rows(tuple(fields), [report], form)


def _shown(value: Any) -> Any:
    return str(value) if isinstance(value, (int, bool)) else value


@click.group()
def db() -> None:
    """The database: its state, checks, backups, copies."""


@db.command("status")
@format_option
@click.pass_context
def status(ctx: click.Context, form: str) -> None:
    """Say how the store is, whatever its state. Nothing is written to it.

    Exit code 0 for a store that can be used (an outdated one is upgraded when it is opened for writing), 3 for one that
    is not there, 5 for one that cannot be used.
    """
    from slime_store.store.upkeep import store_status

    opener: StoreOpener = ctx.obj
    report = store_status(opener.named())
    _write_report(report, form)
    ctx.exit(3 if report.state == "missing" else 5 if report.state in _CANNOT_BE_USED else 0)


@db.command("upgrade", short_help="Bring the store to the newest schema.")
@click.option("--no-backup", is_flag=True, help="Do not back up an SQLite store first.")
@format_option
@click.pass_obj
def upgrade(opener: StoreOpener, no_backup: bool, form: str) -> None:
    """Bring the store to the newest schema, an SQLite store after a backup beside it.

    All or nothing. A PostgreSQL store is not backed up: use pg_dump.
    """
    from slime_store.store.upkeep import upgrade_store

    _write_report(upgrade_store(opener.named(), backup=not no_backup), form)


@db.command("verify", short_help="Check everything, and list what is wrong.")
@click.option("--fix", is_flag=True, help="Delete what nothing refers to. Never anything of a rollout.")
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long side files without a row are left alone: a record may be under way.",
)
@format_option
@click.pass_context
def verify(ctx: click.Context, fix: bool, grace: float, form: str) -> None:
    """Check all that the store holds, and list what is wrong and which samples it concerns.

    Exit code 6 when something is wrong that was not fixed.
    """
    opener: StoreOpener = ctx.obj
    with opener.writing() if fix else opener.reading() as store, Progress("verifying") as progress:
        report = store.verify(fix=fix, grace_seconds=grace, progress=progress)
    if report.problems or form != "table":
        write_rows(_PROBLEM_COLUMNS, [_Row(problem) for problem in report.problems], form)
    looked_at = ", ".join(counted(n, name.replace("_", " ")) for name, n in report.counts.items())
    click.echo(f"{'sound' if report.ok else 'damaged'}: {looked_at}", err=True)
    if n := report.counts.get("rollouts_without_digest"):
        note = f"note: {n} rollouts were recorded before schema 0006 and carry no digests of what their rows say"
        click.echo(note, err=True)
    ctx.exit(0 if report.ok else 6)


class _Row:
    """A problem, with the positions of its samples as ranges."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._problem, name)
        return _ranges(value) if name == "samples" else value


def _ranges(positions: tuple[int, ...]) -> str:
    """Return ``(0, 1, 2, 5)`` as "0-2 5"."""
    spans: list[list[int]] = []
    for position in positions:
        if spans and spans[-1][1] == position - 1:
            spans[-1][1] = position
        else:
            spans.append([position, position])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


@db.command("backup", short_help="Back up the store into a file.")
@click.argument("file", type=click.Path())
@format_option
@click.pass_obj
def backup(opener: StoreOpener, file: str, form: str) -> None:
    """Back up the store into FILE, which must not exist, and its side files into FILE-blobs.

    FILE is a store like any other: open it to restore it. Others may go on writing meanwhile. A PostgreSQL store
    becomes an SQLite file; `db copy` brings it back.
    """
    with opener.reading() as store:
        report = store.backup(file)
    _write_report(report, form)
    for name in report.missing_files:
        click.echo(f"warning: the store has lost side file {name}; see `slime-store db verify`", err=True)


@db.command("copy", short_help="Copy the store to another place, PostgreSQL too.")
@click.argument("to_url")
@format_option
@click.pass_obj
def copy(opener: StoreOpener, to_url: str, form: str) -> None:
    """Copy all that the store holds to TO_URL, which is empty or an earlier copy of it.

    Run it again after an interruption: it goes on where it was. In the end both sides are compared.
    """
    from slime_store.store import copy_store

    with opener.reading() as store, Progress("copying") as progress:
        report = copy_store(store, to_url, progress=progress)
    _write_report(report, form)


@db.command("prune")
@click.option("--run", "run_name", metavar="RUN", help="Only this run; all runs without it.")
@click.option(
    "--keep-arrays-last",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="N",
    help="Keep the arrays of the N highest rollout ids, of train and of eval.",
)
@click.option(
    "--keep-rollouts-last",
    type=click.IntRange(0),
    metavar="N",
    help="Keep only the N highest, and delete older rollouts entirely. Without it none is deleted.",
)
@click.option("--dry-run", is_flag=True, help="Delete nothing; print how many rollouts would be pruned and deleted.")
@click.option("--vacuum", is_flag=True, help="Then give the space back to the file system; see SampleStore.vacuum.")
@format_option
@click.pass_obj
def prune(
    opener: StoreOpener,
    run_name: str | None,
    keep_arrays_last: int,
    keep_rollouts_last: int | None,
    dry_run: bool,
    vacuum: bool,
    form: str,
) -> None:
    """Delete the arrays of older rollouts. Scalars, texts, prompts and metadata stay.

    Pinned rollouts stay whole, and so does what resuming from the last checkpoint needs.
    """
    with opener.reading() if dry_run else opener.writing() as store:
        names = [info.name for info in store.runs()] if run_name is None else [run_name]
        rows = []
        for name in names:
            run = store.run(name, create=False)
            rows.append(_Pruned(name, **asdict(run.prune(keep_arrays_last, keep_rollouts_last, dry_run=dry_run))))
        freed = store.vacuum() if vacuum and not dry_run else None
    write_rows(("run", "n_pruned", "n_deleted", "n_pinned", "n_needed", "freed_bytes"), rows, form)
    if freed is not None:
        click.echo(f"{counted(freed, 'bytes')} given back to the file system", err=True)


@dataclass(frozen=True)
class _Pruned:
    run: str
    freed_bytes: int
    n_pruned: int
    n_deleted: int
    n_pinned: int
    n_needed: int
