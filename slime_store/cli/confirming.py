"""Asking before something is deleted for good."""

from __future__ import annotations

import sys

import click

from slime_store.cli.failures import Failure

yes_option = click.option("--yes", is_flag=True, help="Do not ask; needed where stdin is no terminal.")


def confirm(what: str, word: str, *, yes: bool) -> None:
    """Go on if ``--yes`` says so, or somebody at a terminal types the word.

    Args:
        what: what goes, with its size: "run 'a' with 3 rollouts".
        word: what is to be typed.
        yes: what ``--yes`` says.

    Raises:
        Failure: neither; nothing is to be deleted.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(f"this deletes {what}; say so with --yes", 2)
    typed = click.prompt(f"This deletes {what}. Type {word} to go on", default="", show_default=False, err=True)
    if typed != word:
        raise Failure("nothing was deleted", 2)
