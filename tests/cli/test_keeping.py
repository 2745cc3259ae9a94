"""Pinning and deleting in the shell: what goes, what stays, and what is asked before."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time

import pytest

from slime_store import SampleStore
from slime_store.cli.text import counted
from tests.cli.conftest import Command
from tests.cli.filling import RUN, fill


@pytest.fixture
def filled(store_url: str) -> str:
    fill(store_url)
    return store_url


def _held(url: str, name: str = RUN) -> list[tuple[str, int, int]]:
    with SampleStore.open(url, read_only=True) as store:
        infos = store.run(name, create=False).rollouts(attempts=True)
        return [(info.kind, info.rollout_id, info.attempt) for info in infos]


def test_pins(command: Command, filled: str) -> None:
    done = command("rollout", "pin", RUN, "40", "--note", "why")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"pinned train rollout 40 of run '{RUN}'\n")
    assert command("rollout", "pin", RUN, "0", "--kind", "eval").exit_code == 0
    with SampleStore.open(filled, read_only=True) as store:
        pins = store.run(RUN, create=False).pins()
    assert [(pin.kind, pin.rollout_id, pin.note) for pin in pins] == [("train", 40, "why"), ("eval", 0, None)]
    assert command("rollout", "unpin", RUN, "40").stderr == f"unpinned train rollout 40 of run '{RUN}'\n"
    again = command("rollout", "unpin", RUN, "40")
    assert again.exit_code == 0 and again.stderr.startswith("there was no pin on train rollout 40")
    assert command("rollout", "pin", RUN, "7").exit_code == 3
    assert command("rollout", "pin", "nobody's", "0").exit_code == 3


def test_a_rollout_is_deleted_only_when_that_is_said(command: Command, filled: str) -> None:
    before = _held(filled)
    refused = command("rollout", "delete", RUN, "40")
    assert refused.exit_code == 2 and refused.stdout == "" and _held(filled) == before
    assert refused.stderr == f"error: this deletes train rollout 40 of run '{RUN}' with 18 samples; say so with --yes\n"
    assert command("rollout", "pin", RUN, "40").exit_code == 0
    done = command("rollout", "delete", RUN, "40", "--yes")
    assert (done.exit_code, done.stderr) == (0, f"deleted 1 attempt of train rollout 40 of run '{RUN}'\n")
    assert _held(filled) == [each for each in before if each != ("train", 40, 1)]
    assert command("rollout", "delete", RUN, "100", "--kind", "eval", "--attempt", "1", "--yes").exit_code == 0
    for words in (["40"], ["100", "--attempt", "2"], ["40", "--kind", "eval", "--attempt", "2"]):
        assert command("rollout", "delete", RUN, *words, "--yes").exit_code == 3
    assert command("db", "verify").exit_code == 0


def test_a_run_is_deleted_only_when_that_is_said(command: Command, filled: str) -> None:
    refused = command("run", "delete", RUN)
    assert refused.exit_code == 2 and "8 rollouts, 111 samples; say so with --yes" in refused.stderr, refused.stderr
    assert len(_held(filled)) == 8
    done = command("run", "delete", RUN, "--yes")
    assert (done.exit_code, done.stderr) == (0, f"deleted run '{RUN}': 8 recordings\n")
    assert command("run", "delete", RUN, "--yes").exit_code == 3
    assert command("db", "verify").exit_code == 0
    assert command("run", "delete", "older", "--yes").stderr == "deleted run 'older': 0 recordings\n"


@pytest.mark.parametrize(("typed", "code"), [(b"older\n", 0), (b"yes\n", 2), (b"\n", 2), (b"\x04", 1)])
def test_on_a_terminal_the_name_is_typed(sqlite_url: str, typed: bytes, code: int) -> None:
    fill(sqlite_url)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "slime_store.cli", "--store", sqlite_url, "run", "delete", "older"]
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    shown, deadline = b"", time.monotonic() + 60
    while b"to go on" not in shown and time.monotonic() < deadline:
        shown += os.read(ours, 1000)
    os.write(ours, typed)
    assert child.wait(60) == code, shown
    os.close(ours)
    assert b"This deletes run 'older' with 0 rollouts, 0 samples. Type older to go on" in shown
    with SampleStore.open(sqlite_url, read_only=True) as store:
        assert [info.name for info in store.runs()] == ([RUN] if code == 0 else ["older", RUN])


def test_one_is_not_several(command: Command, filled: str) -> None:
    assert [counted(n, "runs") for n in (0, 1, 2, 1024)] == ["0 runs", "1 run", "2 runs", "1,024 runs"]
    assert command("run", "delete", RUN, "--yes").exit_code == 0
    said = command("db", "verify").stderr
    assert ", 1 run, " in said and "1 runs" not in said, said
