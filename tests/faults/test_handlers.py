"""Signal handlers that use the store, whatever they interrupt: nothing waits for itself, and what returned is there."""

from __future__ import annotations

import pickle
import signal
import sqlite3
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from slime_store import Run, Sample, SampleStore
from slime_store.errors import DatabaseError, StoreBusyError, StoreClosedError
from slime_store.schema import migrator
from slime_store.store import handle as handle_module
from slime_store.store import recording
from slime_store.store.sessions import Sessions
from slime_store.testing.contract.opening import opened
from tests.services.signals import handled, once_before
from tests.services.threads import in_time

GROUPS = 20


def journalled(url: str) -> list[int | None]:
    with opened(url) as store:
        return [samples[0].group_index for samples in store.run("run").resume().journalled_groups]


@pytest.fixture
def run(store_url: str) -> Iterator[Run]:
    store = SampleStore.open(store_url, busy_timeout=20)
    run = store.run("run")
    yield run
    store.close()


def put_groups(run: Run) -> None:
    journal = run.recovery.journal()
    in_time(lambda: [journal.put(0, [Sample(group_index=i)]) for i in range(GROUPS)])


def test_a_handler_closes_the_store_inside_a_record(store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.record_train(0, [[Sample()]])
    once_before(monkeypatch, recording._Recording, "run", lambda: put_groups(run))
    with handled(run._handle.close):
        run.record_train(1, [[Sample()]])  # goes on, and the store is closed behind it
    with pytest.raises(StoreClosedError):
        run.rollouts()
    assert journalled(store_url) == list(range(GROUPS))
    with opened(store_url) as store:
        assert [info.rollout_id for info in store.run("run").rollouts()] == [0, 1]


def test_a_handler_closes_the_store_while_a_session_starts(
    store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_before(monkeypatch, Sessions, "_joined", lambda: put_groups(run))
    with handled(run._handle.close), pytest.raises(StoreClosedError):
        run.record_train(0, [[Sample()]])
    assert journalled(store_url) == list(range(GROUPS))


def test_a_handler_closes_the_store_and_raises(store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def close() -> None:
        run._handle.close()
        raise SystemExit(1)

    run.record_train(0, [[Sample()]])
    once_before(monkeypatch, recording._Recording, "run", lambda: put_groups(run))
    with handled(close), pytest.raises(SystemExit):
        run.record_train(1, [[Sample()]])
    assert journalled(store_url) == list(range(GROUPS))
    with opened(store_url) as store:
        assert [info.rollout_id for info in store.run("run").rollouts()] == [0]


def test_a_handler_that_would_wait_for_its_own_transaction_is_refused(
    store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, errors = run.recovery.journal(), []

    def wait() -> None:
        for work in (journal.flush, journal.close, run.flush):
            with pytest.raises(StoreBusyError, match="signal handler"):
                work()
            errors.append(work)

    once_before(monkeypatch, recording._Recording, "run", lambda: journal.put(0, [Sample(group_index=7)]))
    with handled(wait):
        run.record_train(0, [[Sample()]])
    assert len(errors) == 3
    journal.close()
    assert journalled(store_url) == [7]


def test_a_handler_records_into_the_store_that_is_being_opened(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(sqlite_url) as store:
        run = pickle.loads(pickle.dumps(store.run("run")))
    once_before(monkeypatch, handle_module, "ensure_schema", lambda: None)
    with handled(lambda: run.record_train(1, [[Sample()]])):
        run.record_train(0, [[Sample()]])
    assert [info.rollout_id for info in run.rollouts()] == [0, 1]


def test_a_handler_that_makes_a_store_while_one_is_made_is_refused(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> None:
        with pytest.raises(DatabaseError, match="interrupted"):
            SampleStore.open(tmp_path / "second.db")

    once_before(monkeypatch, migrator, "run_alembic", lambda: None)
    with handled(make), SampleStore.open(tmp_path / "first.db") as store:
        store.run("run").record_train(0, [[Sample()]])
    with SampleStore.open(tmp_path / "second.db") as store:
        store.run("run").record_train(0, [[Sample()]])
    assert sqlite3.connect(tmp_path / "first.db").execute("SELECT count(*) FROM rollouts").fetchone() == (1,)


def test_a_second_ctrl_c_while_the_store_closes_throws_nothing_away(
    store_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, function = threading.Event(), recording._Recording.run

    def slow(*args: Any) -> Any:
        assert go.wait(60)
        return function(*args)

    run.record_train(0, [[Sample()]])
    monkeypatch.setattr(recording._Recording, "run", slow)
    put_groups(run)
    run.record_train(1, [[Sample()]], background=True)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with handled(interrupt), pytest.raises(KeyboardInterrupt):
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)).start()
        run._handle.close()
    go.set()
    run._handle.close()
    assert journalled(store_url) == list(range(GROUPS))
    with opened(store_url) as store:
        assert [info.rollout_id for info in store.run("run").rollouts()] == [0, 1]
