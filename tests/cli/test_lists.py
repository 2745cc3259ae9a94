"""``slime-store run list`` and ``rollout list``, in every format, and what a reading command never does."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from slime_store.cli.failures import EXIT_CODES
from slime_store.cli.output import Progress
from slime_store.cli.root import cli
from slime_store.testing import make_eval_output, make_train_output
from slime_store.testing.contract.opening import run_of
from tests.cli.conftest import Command
from tests.services.commands import invoke


@pytest.fixture
def filled(store_url: str) -> str:
    with run_of(store_url, "first") as run:
        run.record_train(3, make_train_output(2, 2))
        run.record_train(3, make_train_output(2, 3))
        run.record_eval(3, make_eval_output())
    with run_of(store_url, "zweiter\nLauf 准确"):
        pass
    return store_url


def test_runs_are_listed(command: Command, filled: str) -> None:
    table = command("run", "list")
    assert table.exit_code == 0
    head, first, second = table.stdout.splitlines()
    assert head.split() == ["run", "created_at", "n_rollouts"]
    assert first.startswith("first ") and first.endswith(" 2") and second.startswith("zweiter Lauf 准确 ")
    rows = json.loads(command("run", "list", "--format", "json").stdout)
    assert [(row["run"], row["n_rollouts"]) for row in rows] == [("first", 2), ("zweiter\nLauf 准确", 0)]
    assert rows[0]["created_at"].endswith("+00:00")
    table = command("run", "list", "--format", "csv")
    assert [row["n_rollouts"] for row in csv.DictReader(io.StringIO(table.stdout))] == ["2", "0"]


def test_rollouts_are_listed(command: Command, filled: str) -> None:
    def rows(*options: str) -> list[tuple[object, ...]]:
        done = command("rollout", "list", "first", "--format", "json", *options)
        return [(row["kind"], row["rollout_id"], row["attempt"], row["n_samples"]) for row in json.loads(done.stdout)]

    assert rows() == [("train", 3, 2, 6), ("eval", 3, 1, 10)]
    assert rows("--kind", "train", "--attempts") == [("train", 3, 1, 4), ("train", 3, 2, 6)]
    empty = command("rollout", "list", "zweiter\nLauf 准确")
    assert empty.exit_code == 0 and len(empty.stdout.splitlines()) == 1
    assert command("rollout", "list", "zweiter\nLauf 准确", "--format", "json").stdout == "[]\n"


@pytest.mark.parametrize("arguments", [["run", "list"], ["rollout", "list", "r"], ["export", "pt", "--run", "r"]])
def test_a_reading_command_never_makes_a_store(tmp_path: Path, arguments: list[str]) -> None:
    place = tmp_path / "runs.db"
    out = ["--out", str(tmp_path / "x.pt")] if arguments[0] == "export" else []
    done = invoke("--store", str(place), *arguments, *out)
    assert done.exit_code == 3 and done.stdout == ""
    assert done.stderr == (
        f"error: there is no store at {place}; check --store (or SLIME_STORE_URL), or create one by `import`\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_store_may_be_named_in_the_environment(filled: str) -> None:
    done = invoke("run", "list", SLIME_STORE_URL=filled)
    assert done.exit_code == 0 and "first" in done.stdout
    without = invoke("run", "list", SLIME_STORE_URL=None)
    assert without.exit_code == 2 and "--store" in without.stderr and without.stderr.count("\n") == 1


def test_errors_name_the_next_step_and_hide_the_password(command: Command, filled: str, tmp_path: Path) -> None:
    done = command("rollout", "list", "nobody")
    assert done.exit_code == 3 and "see `slime-store run list`" in done.stderr
    (tmp_path / "notes.txt").write_text("x" * 200)
    foreign = command("run", "list", store=str(tmp_path / "notes.txt"))
    assert foreign.exit_code == 5 and "is not a slime_store" in foreign.stderr
    lost = command("run", "list", store="postgresql://u:secret@127.0.0.1:1/x")
    assert lost.exit_code == 5 and "secret" not in lost.output
    odd = command("run", "list", store="mysql://u:secret@h/x")
    assert odd.exit_code == 5 and "secret" not in odd.output


def test_every_command_is_documented_and_the_exit_codes_are_in_the_help() -> None:
    def walk(group: click.Group, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        found = []
        context = click.Context(group)
        for name in group.list_commands(context):
            each = group.get_command(context, name)
            assert each is not None and each.help, name
            for option in each.params:
                assert isinstance(option, click.Argument) or option.help, (name, option.name)  # type: ignore[attr-defined]
            found += walk(each, (*path, name)) if isinstance(each, click.Group) else [(*path, name)]
        return found

    db = [("db", verb) for verb in ("backup", "copy", "prune", "status", "upgrade", "verify")]
    assert walk(cli, ()) == [("run", "list"), ("rollout", "list"), ("import",), ("export", "pt"), *db]
    shown = invoke("--help").stdout
    assert all(meaning in shown for meaning in EXIT_CODES.values())
    assert invoke("nonsense").exit_code == 2


def test_the_help_needs_neither_torch_nor_the_database() -> None:
    program = (
        "import sys, slime_store.cli.root as root\n"
        "root.cli(['--help'], standalone_mode=False)\n"
        "heavy = {'torch', 'pandas', 'numpy', 'sqlalchemy', 'alembic', 'PIL'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Take rollout dumps" in done.stdout


def test_the_command_line_runs_as_a_module(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "slime_store.cli", "--store", str(tmp_path / "x.db"), "run", "list"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 3 and done.stderr.startswith("error: there is no store")


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda shown=is_terminal: shown)
        monkeypatch.setattr(sys, "stderr", stream)
        with Progress("importing") as progress:
            progress(1, 2)
            progress(2, 2)
        assert ("importing" in stream.getvalue() and "100%" in stream.getvalue()) is is_terminal
