"""Running the command line in this process."""

from __future__ import annotations

import inspect
from typing import Any

from click.testing import CliRunner, Result


def invoke(*arguments: str, **environment: str | None) -> Result:
    """Run ``slime-store`` with these words and return its exit code, stdout and stderr, apart from each other."""
    from slime_store.cli.root import cli

    options: Any = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**options).invoke(cli, list(arguments), prog_name="slime-store", env=environment)
