"""The journal: what was put is on disk, whatever happens at the same time and however the process ends."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sqlalchemy import select

from slime_store import RolloutFnTrainOutput, Run, Sample, SampleStore
from slime_store.errors import InvalidOutputError, StoreError
from slime_store.models import SessionRow
from slime_store.store import journal as journal_module
from slime_store.store.imports import ImportSource, record_import
from slime_store.store.prepared import prepare_train
from slime_store.store.requests import JournalClearing
from slime_store.testing.contract.opening import opened
from tests.services.threads import PATIENCE_SECONDS, in_time


def group(index: int, **fields: Any) -> list[Sample]:
    sample = Sample(index=index, group_index=index, reward=1.0)
    for name, value in fields.items():
        setattr(sample, name, value)
    return [sample]


@pytest.fixture
def run(store_url: str) -> Iterator[Run]:
    with opened(store_url) as store:
        yield store.run("run")


def indexes(run: Run) -> list[int | None]:
    """Return the indexes of the journalled groups, oldest first."""
    return [samples[0].group_index for samples in run.resume().journalled_groups]


PROGRAM = """
import sys, numpy as np
from slime_store import Sample, SampleStore
journal = SampleStore.open(sys.argv[1]).run("run").recovery.journal()
for i in range(40):
    sample = Sample(index=i, group_index=i, reward=1.0)
    sample.odd = np.random.default_rng(i).integers(0, 255, 1 << 19, np.uint8)
    journal.put(1, [sample])
if sys.argv[2] == "raise":
    raise RuntimeError("training stops")
if sys.argv[2] == "exit":
    sys.exit(3)
"""


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("raise", marks=pytest.mark.slow_on_postgresql),
        pytest.param("exit", marks=pytest.mark.slow_on_postgresql),
        "end",
    ],
)
def test_a_process_that_ends_by_itself_writes_what_waits(store_url: str, how: str) -> None:
    path = os.pathsep.join(filter(None, (str(Path(journal_module.__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, store_url, how],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == {"raise": 1, "exit": 3, "end": 0}[how], ended.stderr
    with opened(store_url) as store:
        assert indexes(store.run("run")) == list(range(40))


def _put_forty(url: str) -> None:
    journal = SampleStore.open(url).run("run").recovery.journal()
    for i in range(40):
        journal.put(1, group(i, odd=np.random.default_rng(i).integers(0, 255, 1 << 19, np.uint8)))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow_on_postgresql)])
def test_a_child_of_multiprocessing_that_ends_by_itself_writes_what_waits(store_url: str, method: str) -> None:
    child = multiprocessing.get_context(method).Process(target=_put_forty, args=(store_url,))
    child.start()
    child.join(PATIENCE_SECONDS)
    assert child.exitcode == 0
    with opened(store_url) as store:
        assert indexes(store.run("run")) == list(range(40))


AT_EXIT = """
import atexit, sys, threading, time
url, how = sys.argv[1:]
def last():
    journal.put(0, [Sample(group_index=0)])
    run.record_train(0, [[Sample()]], background=True).add_done_callback(
        lambda _: run.record_train(1, [[Sample()]], background=True))
def late():
    time.sleep(0.3)
    last()
if how == "atexit":
    atexit.register(last)  # runs after what is registered later
from slime_store import Sample, SampleStore
def begin():
    global run, journal
    run = SampleStore.open(url).run("run")
    journal = run.recovery.journal()
    if how != "atexit":
        threading.Thread(target=late).start()
if how == "fork":
    import multiprocessing
    child = multiprocessing.get_context("fork").Process(target=begin)
    child.start()
    child.join()
else:
    begin()
"""


@pytest.mark.parametrize("how", ["atexit", "thread", "fork"])
def test_what_is_put_while_the_process_ends_is_written(sqlite_url: str, how: str) -> None:
    path = os.pathsep.join(filter(None, (str(Path(journal_module.__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", AT_EXIT, sqlite_url, how]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    with opened(sqlite_url) as store:
        assert indexes(store.run("run")) == [0]
        assert [info.rollout_id for info in store.run("run").rollouts()] == [0, 1]


def test_closing_the_store_writes_what_waits(store_url: str) -> None:
    with opened(store_url) as store:
        journal = store.run("run").recovery.journal()
        for i in range(20):
            journal.put(1, group(i, odd=np.random.default_rng(i).integers(0, 255, 1 << 19, np.uint8)))
    with opened(store_url) as store:
        assert indexes(store.run("run")) == list(range(20))


def test_put_flush_and_close_at_the_same_time_lose_nothing_and_end(sqlite_url: str) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with opened(sqlite_url) as store:
            run = store.run("run")
            for round_ in range(12):
                journal = run.recovery.journal()
                journal.put(round_, group(0))

                def put(journal: Any = journal, round_: int = round_) -> None:
                    for k in range(1, 4):
                        journal.put(round_, group(k))

                works = [put, journal.close, journal.flush, journal.close]
                in_time(*(works if round_ % 2 else reversed(works)))
                in_time(journal.flush)
                assert len(run.resume().journalled_groups) == 4 * (round_ + 1)
                in_time(journal.close)
    finally:
        sys.setswitchinterval(interval)


def test_a_closed_journal_is_opened_again_by_the_next_group_and_keeps_the_order(run: Run) -> None:
    journal = run.recovery.journal()
    for i in range(6):
        journal.put(0, group(i))
        if i % 2:
            journal.close()
    journal.close()
    journal.close()
    journal.flush()
    assert indexes(run) == list(range(6))


def test_what_is_given_up_with_a_slow_failure_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = []
    go = threading.Event()

    def failing(*_: Any) -> None:
        assert go.wait(PATIENCE_SECONDS)
        raise StoreError("busy")

    journal = run.recovery.journal(on_error=errors.append)
    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "write_rollouts", failing)
        patched.setattr(journal_module, "_PATIENCE_SECONDS", -1.0)
        journal.put(0, group(0))
        for i in range(30):
            journal.put(0, group(i))
        go.set()
        in_time(journal.flush)
    assert len(errors) == 2 and "more groups" in str(errors[1])


def test_a_failure_that_its_own_report_cannot_bear_stops_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def report(error: Exception) -> None:
        raise RuntimeError("no report") from error

    def failing(*_: Any) -> None:
        raise StoreError("no store")

    journal = run.recovery.journal(on_error=report)
    with monkeypatch.context() as patched:
        patched.setattr(journal_module, "write_rollouts", failing)
        journal.put(0, group(0))
        in_time(journal.flush)
    journal.put(0, group(1))
    in_time(journal.flush, journal.close)
    assert indexes(run) == [1]


def test_a_thread_that_cannot_be_started_holds_nothing_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    journal = run.recovery.journal()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            journal.put(0, group(0))
        journal.flush()
    journal.put(0, group(1))
    in_time(journal.close)
    assert indexes(run) == [1]


def test_the_journals_own_thread_may_flush_and_close(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> None:
        raise StoreError("no store")

    def report(_: Exception) -> None:
        journal.flush()
        journal.close()

    journal = run.recovery.journal(on_error=report)
    monkeypatch.setattr(journal_module, "write_rollouts", failing)
    journal.put(0, group(0))
    in_time(journal.flush, journal.close)


def test_what_changes_after_put_is_not_what_is_stored(run: Run) -> None:
    journal = run.recovery.journal()
    kept = UserDict({"w": [1]})
    for i in range(8):
        values, weights, logits = np.ones(3000), torch.ones(3000), torch.ones(5, requires_grad=True)
        mixed = np.array([[1], {"a": 1}], dtype=object)
        journal.put(1, group(i, rollout_log_probs=values, teacher=weights, metadata={"w": values[:3], "of": kept}))
        journal.put(2, group(100 + i, logits=logits, mixed=mixed))
        values *= 0
        weights.zero_()
        kept["w"].append(2)
        mixed[0].append(2)
        with torch.no_grad():
            logits.zero_()
        kept["w"] = [1]
    journal.close()
    groups = [samples[0] for samples in run.resume().journalled_groups]
    for sample in groups:
        if (sample.group_index or 0) < 100:
            assert (sample.rollout_log_probs == 1).all() and (sample.teacher == 1).all()
            assert (sample.metadata["w"] == 1).all() and sample.metadata["of"]["w"] == [1]
        else:
            assert (sample.logits == 1).all() and sample.mixed.tolist() == [[1], {"a": 1}]
    assert len(groups) == 16


def test_the_journal_of_a_session_that_began_later_is_not_cleared(store_url: str) -> None:
    """Two trainings write to one run: what both have is kept."""
    with opened(store_url) as store:
        older = store.run("run")
        journal = older.recovery.journal()
        journal.put(0, group(0))
        journal.flush()
        clear = JournalClearing(whole=True)
        prepare_train(0, [group(0)], state={}, clear_journal=clear).store(older)
        subprocess.run(
            [sys.executable, "-c", PROGRAM, store_url, "end"],
            env={**os.environ, "PYTHONPATH": str(Path(journal_module.__file__).parents[2])},
            check=True,
            timeout=120,
        )
        assert len(indexes(older)) == 40
        prepare_train(1, [group(1)], state={}, clear_journal=clear).store(older)
        assert len(indexes(older)) == 40
    with SampleStore.open(store_url) as store:  # as the next session does with those that it has not taken over
        prepare_train(2, [group(2)], state={}, clear_journal=clear).store(store.run("run"))
        assert indexes(store.run("run")) == []


OLDER = """
import sys
from slime_store import Sample, SampleStore
from slime_store.store.prepared import prepare_train
from slime_store.store.requests import JournalClearing
with SampleStore.open(sys.argv[1]) as store:
    run = store.run("run")
    journal = run.recovery.journal()
    for line in sys.stdin:
        word, number = line.split()
        group = [Sample(index=int(number), group_index=int(number), reward=1.0)]
        if word == "journal":
            journal.put(0, group)
            journal.flush()
        else:
            prepare_train(0, [group], state={}, clear_journal=JournalClearing(whole=True)).store(run)
        print(word, number, flush=True)
"""


def test_the_journal_of_an_older_session_that_is_still_recording_is_not_cleared(store_url: str) -> None:
    """Two trainings write to one run: what the older one has journalled is its own until it records it."""
    older = subprocess.Popen(
        [sys.executable, "-c", OLDER, store_url],
        env={**os.environ, "PYTHONPATH": str(Path(journal_module.__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def tell(what: str) -> None:
        assert older.stdin is not None and older.stdout is not None
        print(what, file=older.stdin, flush=True)
        assert older.stdout.readline().strip() == what

    with older, opened(store_url) as store:
        tell("journal 0")
        run = store.run("run")
        run.recovery.begin_session(checkpoint_rollout_id=None)
        assert indexes(run) == [0]
        tell("journal 1")
        for rollout_id, clear in enumerate([JournalClearing(whole=True), JournalClearing(groups=frozenset({0, 1, 7}))]):
            prepare_train(rollout_id, [group(7)], state={}, clear_journal=clear).store(run)
            assert indexes(run) == [0, 1]
        served = JournalClearing(served=frozenset({0, 1}), whole=True)
        prepare_train(2, [group(0)], state={}, clear_journal=served).store(run)
        assert indexes(run) == [1]  # 0 was there when the session began, and is recorded now
        tell("record 0")  # its own record makes them needless
        assert indexes(run) == []
        tell("journal 3")
        older.communicate(timeout=PATIENCE_SECONDS)
        prepare_train(6, [group(6)], state={}, clear_journal=JournalClearing(whole=True)).store(run)
        assert indexes(run) == [3]  # nobody can tell whether it only pauses
    with opened(store_url) as store:  # it has been silent since this session began
        prepare_train(7, [group(7)], state={}, clear_journal=JournalClearing(whole=True)).store(store.run("run"))
        assert indexes(store.run("run")) == []


def test_what_an_import_adds_to_an_older_session_does_not_keep_its_journal(store_url: str) -> None:
    with opened(store_url) as store:
        older = store.run("run")
        journal = older.recovery.journal()
        journal.put(0, group(0))
        journal.close()
        with store._handle.reading() as connection:
            (session_pk,) = connection.execute(select(SessionRow.id)).scalars()
    with opened(store_url) as store:
        run = store.run("run")
        run.recovery.begin_session(checkpoint_rollout_id=None)
        source = ImportSource(b"content", "spool.db", "given", {}, session_pk)
        record_import(run, 0, RolloutFnTrainOutput([group(9)]), source)
        prepare_train(1, [group(1)], state={}, clear_journal=JournalClearing(whole=True)).store(run)
        assert indexes(run) == []


@pytest.mark.parametrize("number", [2**70, None, "7", 2.0, True])
def test_a_number_that_is_none_is_refused_and_takes_no_other_group_along(sqlite_url: str, number: Any) -> None:
    with opened(sqlite_url) as store:
        run = store.run("run")
        journal = run.recovery.journal()
        for i in range(9):
            journal.put(np.int64(1), group(i))
        with pytest.raises(InvalidOutputError):
            journal.put(number, group(9))
        journal.flush()
        assert indexes(run) == list(range(9))
        assert store.verify().ok


def test_a_group_that_cannot_be_written_takes_no_other_along(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write, errors = journal_module.write_rollouts, list[Exception]()

    def refusing(handle: Any, rollouts: Any) -> Any:
        if any(index == 4 for _, encoded in rollouts for _, index in encoded.groups):
            raise ValueError("not this one")
        return write(handle, rollouts)

    monkeypatch.setattr(journal_module, "write_rollouts", refusing)
    with opened(store_url) as store:
        run = store.run("run")
        journal = run.recovery.journal(on_error=errors.append)
        for i in range(9):
            journal.put(1, group(i))
        journal.flush()
        assert indexes(run) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert [str(error) for error in errors] == ["not this one"]
