"""A PostgreSQL server that crashes, stops or drops connections under a record: it is there once, or refused."""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from slime_store import SampleStore
from slime_store.database import reconnection
from slime_store.errors import BackgroundRecordError, CommitUnknownError, ConnectionFailedError, StoreError
from slime_store.interchange import import_path
from slime_store.store import recording, shared_contents
from slime_store.store.prepared import prepare_train
from slime_store.testing import assert_same
from tests.faults.given import RUN, Left, end_connections, output_of
from tests.faults.steps import Steps
from tests.services.postgres import PostgresServer
from tests.services.tables import value

pytestmark = pytest.mark.postgresql


class _Dropped:
    """Ends the connections of a store from the server's side, at one step of what it does."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url, self._monkeypatch = url, monkeypatch

    def at(self, store: SampleStore, step: int | None) -> Steps:
        """Have it happen at a step; everything is as before at the end of the test."""
        steps, dialect = Steps(step, lambda: end_connections(self.url)), store._handle.engine.dialect
        self._monkeypatch.setattr(
            dialect, "do_commit", steps._around("commit", type(dialect).do_commit.__get__(dialect))
        )
        for module in (recording.SampleRepository, recording.RolloutRepository, shared_contents.PromptRepository):
            for name in ("add", "add_arrays", "ensure", "attempts"):
                if hasattr(module, name):
                    self._monkeypatch.setattr(module, name, _stepping(steps, name, getattr(module, name)))
        return steps


def _stepping(steps: Steps, name: str, method: Any) -> Any:
    def stepping(self: Any, *args: Any, **options: Any) -> Any:
        steps.step(f"before {name}")
        result = method(self, *args, **options)
        steps.step(f"after {name}")
        return result

    return stepping


def test_a_connection_that_drops_at_any_step_of_a_record_costs_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with SampleStore.open(postgres_url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        dropped = _Dropped(postgres_url, monkeypatch)
        with monkeypatch.context():
            names = dropped.at(store, None)
            run.record_train(1, output_of(1))
        monkeypatch.undo()
        assert len(names.names) > 8
        for step in range(len(names.names)):
            info = (dropped.at(store, step), run.record_train(2 + step, output_of(2 + step)))[1]
            monkeypatch.undo()
            assert (info.attempt, info.rollout_id) == (1, 2 + step)
    assert "tried again" in caplog.text
    Left(postgres_url).check({i: i for i in range(2 + len(names.names))})


def test_a_commit_whose_answer_is_lost_is_found_and_not_repeated(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SampleStore.open(postgres_url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        dialect, lost = store._handle.engine.dialect, []
        commit = dialect.do_commit

        def commit_and_lose_the_answer(connection: Any) -> None:
            is_record = not connection.read_only  # its reads end with a COMMIT as well
            commit(connection)
            if is_record and not lost:
                lost.append(connection)
                raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(dialect, "do_commit", commit_and_lose_the_answer)
        info = run.record_train(1, output_of(1))
        assert lost and info.attempt == 1
        assert info == run.rollouts()[-1]
        lost.clear()
        assert run.record_train(1, output_of(2), on_conflict="replace").attempt == 2
        lost.clear()
        run.record_train(3, output_of(3), on_conflict="error")  # its own first try is no conflict
        journal = run.recovery.journal()
        lost.clear()
        journal.put(9, output_of(9).samples[0])
        journal.close()
    assert value(postgres_url, "SELECT count(*) FROM rollouts WHERE kind = 'journal'") == 1
    with SampleStore.open(postgres_url, read_only=True) as store:
        infos = store.run(RUN, create=False).rollouts(attempts=True)
        assert [(info.rollout_id, info.attempt) for info in infos] == [(0, 1), (1, 2), (3, 1)]
        assert store.verify().ok


def _lose_an_answer(store: SampleStore, monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """Lose the answer to the next COMMIT of a store; ``then`` happens before anything is tried again."""
    dialect = store._handle.engine.dialect
    commit = dialect.do_commit

    def commit_and_lose_the_answer(connection: Any) -> None:
        is_record = not connection.read_only  # its reads end with a COMMIT as well
        commit(connection)
        if not is_record:
            return
        connection.driver_connection.close()
        monkeypatch.setattr(dialect, "do_commit", commit)
        then()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(dialect, "do_commit", commit_and_lose_the_answer)


@pytest.mark.parametrize("way", ["stays away", "is held by another writer"])
@pytest.mark.parametrize("background", [False, True], ids=["at once", "in the background"])
def test_a_rollout_of_which_it_is_not_known_whether_it_is_kept_is_not_said_to_be_lost(
    way: str, background: bool, postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", (0.01,))
    with SampleStore.open(postgres_url) as store, ExitStack() as held, SampleStore.open(tmp_path / "spool.db") as spool:
        run = store.run(RUN)
        run.record_train(0, output_of(0))

        patched = held.enter_context(pytest.MonkeyPatch.context())

        def lose_the_server() -> None:
            if way == "stays away":
                patched.setattr(store._handle.engine.dialect, "connect", _refuse)
            else:
                other = held.enter_context(psycopg.connect(postgres_url.replace("+psycopg", "")))
                other.execute("SELECT * FROM slime_store.runs FOR UPDATE")

        patched.setattr(recording.RunRepository, "lock", _impatient(recording.RunRepository.lock))
        prepared = prepare_train(1, output_of(1))
        _lose_an_answer(store, monkeypatch, lose_the_server)
        with pytest.raises(StoreError, match="it is not known whether what was recorded is kept") as caught:
            if background:
                store._handle.background.submit("rollout 1", lambda: prepared.store(run))
                store.flush()
            else:
                prepared.store(run)
        if background:
            assert isinstance(caught.value, BackgroundRecordError) and caught.value.may_be_stored
            assert "nothing of it was stored" not in str(caught.value)
        else:
            assert isinstance(caught.value, CommitUnknownError)
        held.close()
        prepared.store(spool.run(RUN))
        assert [each.action for each in import_path(run, tmp_path / "spool.db").files] == ["skipped"]
        assert [(info.rollout_id, info.attempt) for info in run.rollouts(attempts=True)] == [(0, 1), (1, 1)]


def _refuse(*_: Any, **__: Any) -> Any:
    raise psycopg.OperationalError("could not connect")


def _impatient(lock: Any) -> Any:
    def locking(self: Any, *args: Any) -> Any:
        self._connection.execute(text("SET LOCAL lock_timeout = 100"))
        return lock(self, *args)

    return locking


def test_a_record_whose_last_try_was_not_committed_is_said_to_be_lost(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", (0.01,))
    with SampleStore.open(postgres_url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        dialect = store._handle.engine.dialect

        def roll_back_and_lose_the_answer(connection: Any) -> None:
            connection.rollback()
            if connection.read_only:
                return
            connection.driver_connection.close()
            monkeypatch.undo()
            monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", (0.01,))
            monkeypatch.setattr(recording.SampleRepository, "add", _refuse)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(dialect, "do_commit", roll_back_and_lose_the_answer)
        with pytest.raises(ConnectionFailedError, match=r"could not connect$") as caught:
            run.record_train(1, output_of(1))
        assert not isinstance(caught.value, CommitUnknownError)  # the second try has looked
        monkeypatch.undo()
        assert [info.rollout_id for info in run.rollouts()] == [0]


def test_a_server_that_stays_away_is_a_typed_error_after_a_bounded_time_and_the_store_goes_on_when_it_is_back(
    durable_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "RECONNECT_SECONDS", (0.1, 0.2))
    with durable_server.database() as url, SampleStore.open(url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        durable_server.stop(signal.SIGQUIT)
        started = time.monotonic()
        with pytest.raises(ConnectionFailedError) as caught:
            run.record_train(1, output_of(1))
        assert time.monotonic() - started < 20
        assert "p@ss" not in str(caught.value) and "***" in str(caught.value)
        future = run.record_train(1, output_of(1), background=True)
        assert isinstance(future.exception(60), ConnectionFailedError)
        with pytest.raises(BackgroundRecordError):
            store.flush()
        with pytest.raises(ConnectionFailedError):
            run.load_train(0)
        durable_server.start()
        assert_same(run.load_train(0), output_of(0))
        assert run.record_train(1, output_of(1)).attempt == 1
        Left(url)
        with SampleStore.open(url) as again:
            assert again.verify().ok and [info.rollout_id for info in again.run(RUN).rollouts()] == [0, 1]


@pytest.mark.parametrize("n_kills", [1, pytest.param(50, marks=pytest.mark.slow)])
def test_h8_a_server_that_is_killed_while_rollouts_are_recorded_loses_none_and_repeats_none(
    durable_server: PostgresServer, n_kills: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng, stop, failures = random.Random(n_kills), threading.Event(), list[BaseException]()
    recorded: list[int] = []
    caplog.set_level(logging.CRITICAL)
    with durable_server.database() as url, SampleStore.open(url) as store:
        run = store.run(RUN)

        def record_for_ever() -> None:
            rollout_id = 0
            while not stop.is_set():
                output = output_of(rollout_id % 40)
                try:
                    assert run.record_train(rollout_id, output).attempt == 1
                except BaseException as error:
                    failures.append(error)
                    return
                recorded.append(rollout_id)
                rollout_id += 1

        thread = threading.Thread(target=record_for_ever)
        thread.start()
        for _ in range(n_kills):
            n_before, deadline = len(recorded), time.monotonic() + 60
            while len(recorded) < n_before + 2 and thread.is_alive() and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.2 * rng.random())
            durable_server.stop(signal.SIGQUIT)
            durable_server.start()
        stop.set()
        thread.join(60)
        assert failures == [] and len(recorded) > 2 * n_kills
        infos = run.rollouts(attempts=True)
        assert [(info.rollout_id, info.attempt) for info in infos] == [(i, 1) for i in recorded]
        for rollout_id in recorded[:: max(1, len(recorded) // 40)]:
            assert_same(run.load_train(rollout_id), output_of(rollout_id % 40))
        assert store.verify().ok
    print(f"server killed {n_kills} times, {len(recorded)} rollouts recorded, nothing lost")


def test_a_reader_whose_connection_was_dropped_fails_typed_at_most_once(postgres_url: str) -> None:
    with SampleStore.open(postgres_url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        for _ in range(3):
            with pytest.raises(ConnectionFailedError), store._handle.reading() as connection:
                connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            assert_same(run.load_train(0), output_of(0))
