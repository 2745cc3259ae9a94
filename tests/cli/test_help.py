"""Help: every command is documented, its examples run, and the page on the command line is up to date."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from slime_store.cli.failures import EXIT_CODES
from slime_store.cli.reference import commands, example_lines, page
from slime_store.testing import make_train_output
from tests.cli.filling import fill
from tests.interchange.archives import dump_of, saved
from tests.services.commands import invoke

ROOT = Path(__file__).parents[2]
COMMANDS = {" ".join(path): command for path, command in commands()}
EXAMPLES = [line for command in COMMANDS.values() for line in example_lines(command)]
DESIGNED = {
    *("run list", "run show", "run delete", "rollout list", "rollout show", "sample list", "sample show", "rewards"),
    *("rollout pin", "rollout unpin", "rollout delete"),
    *("eval show", "eval compare", "eval export", "import"),
    *("export pt", "export parquet", "export jsonl", "export csv"),
}


def test_every_command_is_there_and_documented() -> None:
    assert set(COMMANDS) >= DESIGNED
    for name, command in COMMANDS.items():
        assert command.help and (example_lines(command) or name.startswith("db ")), name
        for option in command.params:
            assert isinstance(option, click.Argument) or option.help, (name, option.name)  # type: ignore[attr-defined]
    shown = invoke("--help").stdout
    assert all(meaning in shown for meaning in EXIT_CODES.values())
    assert invoke("nonsense").exit_code == 2


def test_the_page_on_the_command_line_is_made_from_the_commands() -> None:
    written = (ROOT / "docs" / "cli.md").read_text("utf-8")
    assert written == page(), "python -m slime_store.cli.reference > docs/cli.md"


@pytest.mark.parametrize("line", [line for line in EXAMPLES if not line.startswith("slime-store db ")])
def test_every_example_runs(line: str, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fill(sqlite_url)
    words = shlex.split(line.partition(" | ")[0])[1:]
    for i, word in enumerate(words):
        if word == "/data/dumps":
            words[i] = str(saved(tmp_path / "dumps" / "7.pt", dump_of(make_train_output(1, 1).samples, 7)).parent)
        elif word.endswith(".pt") and words[0] == "import":
            saved(tmp_path / word, dump_of(make_train_output(1, 1).samples, 12))
    done = invoke("--store", sqlite_url, *words)
    assert done.exit_code == 0, (done.stdout, done.stderr, done.exception)


def test_the_help_says_in_whole_lines_what_there_is() -> None:
    for words in ([], *({path[:1] for path, _ in commands() if len(path) > 1})):
        shown = invoke(*words, "--help").stdout
        assert "Commands:" in shown and "..." not in shown.partition("Commands:")[2], shown


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["reward", "r"], "No such command 'reward'. Did you mean 'rewards'?"),
        (["samples"], "No such command 'samples'. Did you mean 'sample'?"),
        (["verify"], "No such command 'verify'. Did you mean 'db verify'?"),
        (["nonsense"], "No such command 'nonsense'."),
        (["run", "list", "--store", "x"], "--store goes before the command: slime-store --store PATH_OR_URL ..."),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(words: list[str], hint: str) -> None:
    done = invoke(*words)
    assert done.exit_code == 2 and done.stderr.splitlines()[-1] == f"Error: {hint}"


def test_the_help_needs_neither_torch_nor_the_database() -> None:
    program = (
        "import sys, slime_store.cli.root as root\n"
        "root.cli(['--help'], standalone_mode=False)\n"
        "heavy = {'torch', 'pandas', 'numpy', 'sqlalchemy', 'alembic', 'PIL', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Take rollout dumps" in done.stdout


@pytest.mark.parametrize("arguments", [["run", "list"], ["sample", "show", "r", "0", "0"], ["rollout", "list", "r"]])
def test_looking_needs_no_torch(sqlite_url: str, arguments: list[str], tmp_path: Path) -> None:
    from slime_store.testing.contract.opening import run_of

    with run_of(sqlite_url, "r") as run:
        run.record_train(0, make_train_output(1, 1))
    program = (
        "import sys, slime_store.cli.root as root\n"
        f"root.cli(['--store', {sqlite_url!r}, *{arguments!r}], standalone_mode=False)\n"
        "sys.exit(1 if 'torch' in sys.modules or 'pandas' in sys.modules else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
