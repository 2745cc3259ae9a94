"""The command line, run in process against a real store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import Result

from tests.services.commands import invoke

Command = Callable[..., Result]


@pytest.fixture
def command(store_url: str) -> Command:
    """Run ``slime-store --store URL ...`` and return what came of it."""

    def run(*arguments: str, store: str = store_url) -> Result:
        return invoke("--store", store, *arguments)

    return run
