"""A reader of stdout that has seen enough (``| head``): the command ends quietly, as Unix tools do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slime_store.cli.failures import EXIT_CODES
from slime_store.testing import make_train_output
from slime_store.testing.contract.opening import run_of

PROGRAM = [sys.executable, "-m", "slime_store.cli"]


@pytest.fixture
def filled(sqlite_url: str) -> str:
    with run_of(sqlite_url, "r") as run:
        run.record_train(0, make_train_output(64, 8, n_tokens=64))
    return sqlite_url


@pytest.mark.parametrize(
    "words",
    [
        ["sample", "list", "r", "--limit", "0"],
        ["sample", "list", "r", "--format", "csv"],
        ["sample", "list", "r", "--format", "json"],
        ["sample", "show", "r", "0", "0"],
        ["run", "list"],
        ["db", "status"],
        ["db", "status", "--format", "csv"],
        ["export", "jsonl", "--run", "r", "--out", "-"],
        ["export", "csv", "--run", "r", "--out", "-"],
        ["--help"],
    ],
    ids=" ".join,
)
def test_a_closed_pipe_ends_a_command_quietly(filled: str, words: list[str], tmp_path: Path) -> None:
    command = [*PROGRAM, "--store", filled, *words]
    with (tmp_path / "stderr").open("wb") as stderr:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr)
        assert child.stdout is not None
        child.stdout.close()
        assert child.wait(60) == 141
    assert (tmp_path / "stderr").read_text() == ""


def test_a_shell_sees_what_it_sees_of_other_programs(filled: str) -> None:
    script = '"$@" | head -n 2; echo "${PIPESTATUS[0]}"; yes | head -n 1; echo "${PIPESTATUS[0]}"'
    words = ["export", "jsonl", "--run", "r", "--out", "-"]  # more than a pipe holds
    command = ["bash", "-c", script, "bash", *PROGRAM, "--store", filled, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split()[-3:] == ["141", "y", "141"] and done.stderr == ""
    assert 141 in EXIT_CODES


def test_a_pipe_that_is_read_to_its_end_is_no_failure(filled: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "--store", filled, "run", "list", "--format", "csv"], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("run,created_at,n_rollouts\nr,")
