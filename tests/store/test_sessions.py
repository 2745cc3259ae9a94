"""A process's session of a run: shared by its handles, ended when the last one that wrote in it is closed."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from slime_store import Run, Sample, SampleStore
from slime_store.errors import DatabaseError, StoreClosedError, StoreError
from slime_store.store.prepared import prepare_train
from slime_store.store.requests import JournalClearing
from slime_store.store.sessions import _registry as registry
from slime_store.testing.contract.opening import opened
from tests.services.tables import execute, rows

ALIKE = {"temperature": 1.0}


def group(index: int) -> list[Sample]:
    return [Sample(index=index, group_index=index, reward=1.0)]


@pytest.fixture
def handles() -> Iterator[ExitStack]:
    """Closes the stores that are left."""
    with ExitStack() as stack:
        yield stack


def begun(url: str, handles: ExitStack) -> tuple[SampleStore, Run]:
    """Open a store whose session has a lineage."""
    store = handles.enter_context(SampleStore.open(url))
    run = store.run("run")
    run.recovery.begin_session(checkpoint_rollout_id=-1, lineage=ALIKE)
    run.record_train(0, [group(0)], state={"n": 0})
    return store, run


def sessions(url: str) -> list[Any]:
    """Return the lineage of each session."""
    return [lineage for (lineage,) in rows(url, "SELECT lineage FROM sessions ORDER BY id")]


@pytest.mark.parametrize("process", ["1" * 32, "d" * 32])
def test_a_session_names_its_process_whatever_the_name_looks_like(
    store_url: str, handles: ExitStack, monkeypatch: pytest.MonkeyPatch, process: str
) -> None:
    """One name of a thousand has nineteen digits in a row, as a number of 64 bits would."""
    monkeypatch.setattr(registry, "process", process)
    begun(store_url, handles)
    ((client,),) = rows(store_url, "SELECT client FROM sessions")
    assert json.loads(client)["process"] == process


def read_only(url: str) -> None:
    with opened(url, read_only=True) as store:
        store.run("run", create=False).rollouts()


def unused(url: str) -> None:
    with opened(url) as store:
        store.run("run").rollouts()


def writing(url: str) -> None:
    with opened(url) as store:
        store.run("run").record_train(9, [group(9)], state={})


def unpickled(url: str) -> None:
    with SampleStore.open(url) as first, pickle.loads(pickle.dumps(first)) as second:
        second.run("run").record_train(9, [group(9)], state={})


def dropped(url: str) -> None:
    SampleStore.open(url).run("run").record_train(9, [group(9)], state={})
    gc.collect()


def closed_twice(url: str) -> None:
    store = SampleStore.open(url)
    store.run("run").record_train(9, [group(9)], state={})
    store.close()
    store.close()


def in_a_child(url: str) -> None:
    """The child of a fork has sessions of its own, and ends none of its parent's."""
    store = SampleStore.open(url)
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        store.close()
        read_only(url)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    store.close()


OTHERS = [read_only, unused, writing, unpickled, dropped, closed_twice, in_a_child]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
@pytest.mark.parametrize("other", OTHERS)
def test_h_closing_another_handle_does_not_end_a_session(store_url: str, handles: ExitStack, other: Any) -> None:
    _, run = begun(store_url, handles)
    journal = run.recovery.journal()
    journal.put(2, group(20))
    journal.close()
    other(store_url)
    prepare_train(1, [group(1)], state={}, clear_journal=JournalClearing(whole=True)).store(run)
    assert len(sessions(store_url)) == 1
    point = run.resume(checkpoint_rollout_id=0, lineage=ALIKE)
    assert [info.rollout_id for info in point.complete] == [1] and len(point.journalled_groups) == 1
    assert run.resume(checkpoint_rollout_id=0, lineage={"temperature": 0.1}).complete == ()


def test_a_session_goes_on_as_long_as_one_handle_that_wrote_in_it_is_open(store_url: str, handles: ExitStack) -> None:
    first, _ = begun(store_url, handles)
    second = handles.enter_context(SampleStore.open(store_url))
    second.run("run").record_train(1, [group(1)])
    first.close()
    third = handles.enter_context(SampleStore.open(store_url))
    third.run("run").record_train(2, [group(2)])
    second.close()
    third.run("run").record_train(3, [group(3)])
    assert len(sessions(store_url)) == 1
    third.close()
    writing(store_url)
    assert len(sessions(store_url)) == 2


def test_a_handle_that_was_never_closed_neither_ends_a_session_nor_keeps_it_from_ending(
    store_url: str, handles: ExitStack
) -> None:
    for rollout_id in range(3):
        SampleStore.open(store_url).run("run").record_train(rollout_id, [group(0)])
        gc.collect()
    assert len(sessions(store_url)) == 1
    writing(store_url)  # the last one that is there, and it is closed
    writing(store_url)
    assert len(sessions(store_url)) == 2


def test_two_ways_to_one_file_are_one_store(
    tmp_path: Path, handles: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    _, run = begun(str(tmp_path / "real" / "store.db"), handles)
    monkeypatch.chdir(tmp_path)
    for way in ("link/store.db", "real/../link/store.db", f"sqlite:///{tmp_path}/link/store.db", "real/store.db"):
        writing(way)
    run.record_train(1, [group(1)])
    assert len(sessions(f"sqlite:///{tmp_path}/real/store.db")) == 1


def test_two_urls_of_one_database_are_one_store(postgres_url: str, handles: ExitStack) -> None:
    _, run = begun(postgres_url, handles)
    writing(postgres_url + ("&" if "?" in postgres_url else "?") + "application_name=another")
    run.record_train(1, [group(1)])
    assert len(sessions(postgres_url)) == 1


def test_a_new_store_in_the_place_of_a_deleted_one_has_a_session_of_its_own(tmp_path: Path, handles: ExitStack) -> None:
    path = tmp_path / "store.db"
    old, run = begun(str(path), handles)
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    with opened(str(path)) as store:
        run = store.run("run")
        run.record_train(1, [group(1)])
        assert sessions(f"sqlite:///{path}") == [None]
        old.close()
        run.record_train(2, [group(2)])
    assert sessions(f"sqlite:///{path}") == [None]


def test_stores_in_memory_have_nothing_in_common() -> None:
    for _ in range(3):
        run = SampleStore.open(":memory:").run("run")
        info = run.record_train(0, [group(0)])
        assert info.session == 1
        del run
        gc.collect()


def test_a_closed_handle_begins_no_session_and_joins_none(store_url: str, handles: ExitStack) -> None:
    closed, run = begun(store_url, handles)
    other = handles.enter_context(SampleStore.open(store_url))
    other.run("run").record_train(1, [group(1)])
    closed.close()
    with pytest.raises(StoreClosedError):
        run.recovery.record_checkpoint(0)
    other.close()
    writing(store_url)
    assert len(sessions(store_url)) == 2


def test_a_run_that_was_deleted_and_made_again_has_a_new_session(store_url: str, handles: ExitStack) -> None:
    store, _ = begun(store_url, handles)
    store.delete_run("run")
    with opened(store_url) as other:
        other.run("run").record_train(0, [group(0)])
    assert sessions(store_url) == [None]


def test_a_database_that_was_made_anew_has_a_session_of_its_own(postgres_url: str, handles: ExitStack) -> None:
    begun(postgres_url, handles)
    execute(postgres_url, "DROP SCHEMA slime_store CASCADE")
    with opened(postgres_url) as store:
        assert store.run("run").record_train(1, [group(1)]).session == 1
    assert sessions(postgres_url) == [None]


def test_a_signal_handler_may_close_the_store_while_a_session_starts(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SampleStore.open(path, busy_timeout=20)
    run = store.run("run")
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")  # the session waits for it
    threading.Timer(1.0, lambda: other.execute("ROLLBACK")).start()

    def close(*_: object) -> None:
        store.close()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, close)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises((KeyboardInterrupt, StoreError)):
            run.record_train(0, [[Sample()]])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        other.close()
    with SampleStore.open(path) as store:
        store.run("run").record_train(0, [[Sample()]])


def test_a_store_that_was_made_anew_under_an_open_handle_is_not_written_to(store_url: str, tmp_path: Path) -> None:
    """Under its keys there may be a run of somebody else's."""

    def made_anew() -> None:
        if store_url.startswith("sqlite"):
            for file in tmp_path.glob("store.db*"):
                if file.is_file():
                    file.unlink()
        else:
            execute(store_url, "DROP SCHEMA slime_store CASCADE")
        with opened(store_url) as store:
            store.run("theirs").record_train(0, [group(5)])

    store = SampleStore.open(store_url)
    run = store.run("mine")
    run.record_train(0, [group(1)])
    store._handle.engine.dispose()  # as before a fork: nothing holds the file
    made_anew()
    store._handle._file = store._handle._file_identity()  # the new file may have the number of the old one
    with pytest.raises(DatabaseError, match="made anew"):
        run.record_train(1, [group(1)])
    store.close()
    with opened(store_url) as store:
        assert [info.rollout_id for info in store.run("theirs").rollouts()] == [0]


def _train(url: str, rollout_ids: range, start: int, checkpoint: int) -> None:
    with SampleStore.open(url) as store:
        run = store.run("run")
        run.recovery.begin_session(checkpoint_rollout_id=start, lineage={"seed": 1})
        for rollout_id in rollout_ids:
            run.record_train(rollout_id, [group(rollout_id)], state={"sample_offset": rollout_id})
        run.recovery.record_checkpoint(checkpoint)


def test_what_followed_another_rollout_than_the_checkpoints_is_not_adopted(store_url: str) -> None:
    for first, last, start, checkpoint in ((0, 4, -1, 0), (1, 2, 0, 2)):  # the second goes back and makes 1 and 2 anew
        child = multiprocessing.get_context("fork").Process(
            target=_train, args=(store_url, range(first, last + 1), start, checkpoint)
        )
        child.start()
        child.join(60)
        assert child.exitcode == 0
    with opened(store_url) as store:
        run = store.run("run")
        point = run.resume(lineage={"seed": 1})
        assert (point.checkpoint_rollout_id, point.complete) == (2, ())
        assert point.refused == "rollout 3 is from session 1, before rollout 2 was made anew"
        assert len(run.resume(checkpoint_rollout_id=0, lineage={"seed": 1}).complete) == 2
