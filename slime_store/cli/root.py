"""The group of all commands. Nothing here imports SQLAlchemy, numpy or torch: commands do, when they run."""

from __future__ import annotations

import click

from slime_store import __version__
from slime_store.cli.failures import EXIT_CODES, reported
from slime_store.cli.lazy import LazyGroup
from slime_store.cli.stores import StoreOpener


class _Root(LazyGroup):
    def invoke(self, ctx: click.Context) -> object:
        """Run the command; errors of the store become one line on stderr and an exit code."""
        with reported():
            return super().invoke(ctx)


_EPILOG = "\b\nExit codes:\n" + "\n".join(f"  {code}  {meaning}" for code, meaning in EXIT_CODES.items())


@click.group(
    cls=_Root,
    commands_in={
        "run": "slime_store.cli.run:run",
        "rollout": "slime_store.cli.rollout:rollout",
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
    """Look into a sample store, and move rollouts in and out of it."""
    ctx.obj = StoreOpener(url)
