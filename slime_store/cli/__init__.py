"""The command line, ``slime-store``."""

from __future__ import annotations


def main() -> None:
    """Run the command line: the entry point of the package."""
    from slime_store.cli.root import cli

    cli(prog_name="slime-store")


__all__ = ["main"]
