"""The command line, run in process against a real store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from slime_store.cli.root import cli

Command = Callable[..., Result]


@pytest.fixture
def command(store_url: str) -> Command:
    """Run ``slime-store --store URL ...`` and return what came of it."""

    def run(*arguments: str, store: str = store_url) -> Result:
        return CliRunner().invoke(cli, ["--store", store, *arguments], prog_name="slime-store")

    return run
