"""The command that takes dumps in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from slime_store.cli.options import examples, kind_option, run_option
from slime_store.cli.output import Progress, format_option, write_rows
from slime_store.cli.stores import StoreOpener
from slime_store.cli.terminal import one_line

if TYPE_CHECKING:
    from slime_store.interchange import ImportedFile

_COLUMNS = ("action", "kind", "rollout_id", "attempt", "n_samples", "path", "reason")


@click.command(
    "import",
    epilog=examples(
        "import /data/dumps --run qwen3-4b-dapo",
        "import out/12.pt out/eval_12.pt --run qwen3-4b-dapo --strict",
    ),
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@run_option
@kind_option("Of a file, what it is of when its name does not say so; of a folder, take only these.")
@click.option(
    "--from-run",
    metavar="RUN",
    help="Of another store, the run to take; default: the one that is called like --run, else the only one.",
)
@click.option("--trust", is_flag=True, help="Let torch unpickle the files, which runs whatever code they hold.")
@click.option("--strict", is_flag=True, help="Fail on values that cannot be kept exactly, instead of marking them.")
@format_option
@click.pass_context
def import_dumps(
    ctx: click.Context,
    paths: tuple[str, ...],
    run_name: str,
    kind: Literal["train", "eval"] | None,
    from_run: str | None,
    trust: bool,
    strict: bool,
    form: str,
) -> None:
    """Take rollout dumps of slime or miles, or spool files, into a run.

    A PATH is a dump, a spool file or another store, or a folder: of dumps, or of --dump-details. No code in the files
    is run, unless --trust is given. A file whose content the run has already is skipped; a rollout that it has from
    elsewhere gets a further attempt. One bad file does not stop the rest.
    """
    from slime_store.interchange.dump_names import Neighbours
    from slime_store.interchange.importing import find_dumps, import_any, refuse_without

    opener: StoreOpener = ctx.obj
    neighbours = Neighbours()
    files = list(dict.fromkeys(file for path in paths for file in find_dumps(path, kind, neighbours)))
    done: list[ImportedFile] = []
    try:
        with opener.writing_run(run_name) as run, Progress("importing") as progress:
            for number, file in enumerate(files, 1):
                done += import_any(run, file, from_run=from_run, trust=trust, strict=strict)
                progress(number, len(files))
        refuse_without(files, done)
    finally:  # also where the database fails halfway: these are recorded
        write_rows(_COLUMNS, done, form)
    for each in done:
        for what in [*[f"{place}: replaced by a placeholder" for place in each.placeholders], *each.notes]:
            click.echo(one_line(f"warning: {each.path}: {what}"), err=True)
    failed = [each for each in done if each.action == "failed"]
    for each in failed:
        click.echo(one_line(f"error: {each.path}: {each.reason}"), err=True)
    ctx.exit(1 if failed else 0)
