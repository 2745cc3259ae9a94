"""The page on the command line, made from the commands themselves.

``python -m slime_store.cli.reference > docs/cli.md`` writes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from slime_store.cli.failures import EXIT_CODES
from slime_store.cli.root import cli

_HEAD = """\
# The command line

This page is made from the commands, by `python -m slime_store.cli.reference > docs/cli.md`; a test compares them, and
another runs every example.

`slime-store [--store PATH_OR_URL] NOUN VERB ...`: the store is an SQLite file or
`postgresql+psycopg://USER:PASSWORD@HOST/DATABASE`, and may be named in `SLIME_STORE_URL` instead. Commands that read
never create, upgrade or change a store, and neither block nor slow a training that writes to it (but for a store on a
network file system, see docs/reliability.md).

* **Output.** Data goes to stdout; errors, warnings, progress and counts of what is not shown go to stderr. A listing is
  a table, or with `--format json` one list of objects, or with `--format csv` rows with a header. A table has at most
  50 rows unless `--limit` says otherwise, 0 being all. On a terminal tables fit its width, and there are colours unless
  `NO_COLOR` is set; elsewhere nothing is cut, so that `| less -S`, `| grep` and `| head` work. Control characters in
  what a model said are shown as symbols.
* **Numbers** in tables have four digits that count; JSON and CSV have all of them. What is missing, NaN included, is
  empty in tables and CSV, and null in JSON.
* **Errors** are one line that says what to do next.
* **Completion** of commands, options and runs: put `eval "$(_SLIME_STORE_COMPLETE=bash_source slime-store)"` into
  `~/.bashrc`, or the same with `zsh_source` into `~/.zshrc`; in fish,
  `_SLIME_STORE_COMPLETE=fish_source slime-store | source`.

| exit code | meaning |
| --- | --- |
"""


def page() -> str:
    """Return the whole page, in Markdown."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    return _HEAD + codes + "".join(line for path, command in commands() for line in _section(path, command))


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command that is no group, with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def example_lines(command: click.Command) -> list[str]:
    """Return the command lines in a command's help."""
    lines = (command.epilog or "").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("slime-store ")]


def _section(path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    arguments = " ".join(_argument(each) for each in command.params if isinstance(each, click.Argument))
    yield f"\n## {' '.join(path)} {arguments}".rstrip() + "\n\n"
    yield inspect.cleandoc(command.help or "").replace("\b\n", "") + "\n\n"
    if lines := example_lines(command):
        yield "```\n" + "".join(f"{line}\n" for line in lines) + "```\n\n"
    yield "| option | meaning |\n| --- | --- |\n"
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"| {_names(option)} | {_meaning(option)} |\n"


def _argument(argument: click.Argument) -> str:
    return argument.metavar or (argument.name or "").upper()


def _names(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {' or '.join(map(str, option.type.choices))}"
    return f"{names} {option.metavar or option.type.name.upper()}"


def _meaning(option: click.Option) -> str:
    needed = " Must be given." if option.required else ""
    has_default = option.show_default and isinstance(option.default, (str, int, float))
    default = f" Default: {option.default}." if has_default else ""
    return f"{option.help or ''}{needed}{default}".replace("|", "\\|").replace("  [", " [")


if __name__ == "__main__":
    print(page(), end="")
