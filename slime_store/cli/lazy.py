"""A group whose commands are imported when they are needed."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; of one that is not there, say which ones are meant, perhaps."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if isinstance(error, click.NoSuchOption) or not (meant := self._like(ctx, args[0])):
                raise
            text = f"No such command '{args[0]}'. Did you mean {' or '.join(map(repr, meant))}?"
            raise click.UsageError(text, ctx) from None

    def _like(self, ctx: click.Context, word: str) -> list[str]:
        names = self.list_commands(ctx)
        if close := get_close_matches(word, names, n=2):
            return close
        found = [(name, self.get_command(ctx, name)) for name in names]
        return [f"{name} {word}" for name, each in found if isinstance(each, click.Group) and word in each.commands]
