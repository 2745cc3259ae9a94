"""``slime-store run list`` and ``rollout list``, in every format, and what a reading command never does."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from slime_store.cli.output import Progress
from slime_store.cli.reference import commands, example_lines
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


READING = [line for path, each in commands() if path[0] not in ("import", "db") for line in example_lines(each)[:1]]


@pytest.mark.parametrize("line", READING)
def test_a_reading_command_never_makes_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "runs.db"
    done = invoke("--store", str(place), *shlex.split(line)[1:])
    assert done.exit_code == 3 and done.stdout == ""
    assert done.stderr == (
        f"error: there is no store at {place}; check --store (or SLIME_STORE_URL), or create one by `import`\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("line", READING)
def test_a_reading_command_that_finds_no_run_says_where_to_look(
    filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    done = invoke("--store", filled, *shlex.split(line)[1:])
    if "run list" in line:
        assert done.exit_code == 0
        return
    assert done.exit_code == 3 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.endswith("see `slime-store run list`\n")
    assert {path.name.partition(".db")[0] for path in set(tmp_path.iterdir()) - set(before)} <= {"store"}


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
