"""A group whose commands are imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

import click


class LazyGroup(click.Group):
    """A group of commands that are named, not imported.

    Args:
        commands_in: name of a command -> ``"module:attribute"``.
    """

    def __init__(self, *args: Any, commands_in: dict[str, str] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._commands_in = commands_in or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order given."""
        return [*self._commands_in, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module; None if there is none of this name."""
        place = self._commands_in.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command
