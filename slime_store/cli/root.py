"""The group of all commands. Nothing here imports SQLAlchemy, numpy or torch: commands do, when they run."""

from __future__ import annotations

import os
from typing import Any

import click

from slime_store import __version__
from slime_store.cli.failures import EXIT_CODES, reported, until_the_pipe_closes
from slime_store.cli.lazy import LazyGroup
from slime_store.cli.stores import StoreOpener


class _Root(LazyGroup):
    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Parse the words; ``--help`` and ``--version`` are printed here."""
        with until_the_pipe_closes():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; errors of the store become one line on stderr and an exit code."""
        try:
            with reported():
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.option_name != "--store":
                raise
            text = "--store goes before the command: slime-store --store PATH_OR_URL ..."
            raise click.UsageError(text, error.ctx) from None


_EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())


@click.group(
    cls=_Root,
    commands_in={
        "run": "slime_store.cli.run:run",
        "rollout": "slime_store.cli.rollout:rollout",
        "group": "slime_store.cli.group:group",
        "sample": "slime_store.cli.sample:sample",
        "prompt": "slime_store.cli.group:prompt",
        "rewards": "slime_store.cli.rewards:show_rewards",
        "eval": "slime_store.cli.eval:evaluation",
        "import": "slime_store.cli.importing:import_dumps",
        "export": "slime_store.cli.export:export",
        "db": "slime_store.cli.db:db",
    },
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--store",
    "url",
    envvar="SLIME_STORE_URL",
    metavar="PATH_OR_URL",
    help="The store: an SQLite file, or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE.  [env: SLIME_STORE_URL]",
)
@click.version_option(__version__, prog_name="slime-store")
@click.pass_context
def cli(ctx: click.Context, url: str | None) -> None:
    """Look into a sample store, and move rollouts in and out of it.

    Begin with `run list` and `run show RUN`. `slime-store sample --help` lists what there is about samples, and so for
    the others.
    """
    ctx.obj = StoreOpener(url)
    if os.environ.get("NO_COLOR"):  # https://no-color.org
        ctx.color = False
