"""Many processes on one store: nothing lost, no error, one upgrade, two sessions kept apart (cases H1, H2, H6, H11)."""

from __future__ import annotations

import itertools
import logging
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from slime_store import SampleFilter, SampleStore
from slime_store.schema import HEAD
from slime_store.testing import assert_same, make_train_output
from slime_store.testing.contract.opening import opened, run_of
from tests.faults.given import FORK, PATIENCE_SECONDS, RUN
from tests.migrations import old_content
from tests.migrations.old_stores import put
from tests.services.tables import rows, value

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


def _output(rollout_id: int) -> Any:
    return make_train_output(2, 2, seed=rollout_id % 200, n_tokens=8, first_group_index=2 * rollout_id)


def _join(processes: list[Any], seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


# -- writers and readers


def _write(url: str, writer: int, n_each: int) -> None:
    with run_of(url, RUN) as run:
        for rollout_id in range(writer * n_each, (writer + 1) * n_each):
            run.record_train(rollout_id, _output(rollout_id))


def _read(url: str, done: Any, results: Any) -> None:
    with opened(url, read_only=True) as store:
        run, seen = store.run(RUN, create=False), set[int]()
        for turn in itertools.count():
            is_last = done.is_set()
            ids = [info.rollout_id for info in run.rollouts()]
            assert seen <= set(ids), "a rollout was there and is gone"
            seen = set(ids)
            if ids:
                rollout_id = ids[turn * 7 % len(ids)]
                assert_same(run.load_train(rollout_id), _output(rollout_id))
                assert len(list(run.iter_samples(SampleFilter(rollout_ids=rollout_id), fields=["reward"]))) == 4
            if is_last:
                break
        results.put((turn, len(seen)))


@pytest.mark.parametrize("n_each", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_h1_eight_writers_and_two_readers_meet_no_error_and_lose_nothing(store_url: str, n_each: int) -> None:
    with opened(store_url) as store:
        store.run(RUN)
    done, results = FORK.Event(), FORK.SimpleQueue()
    readers = [FORK.Process(target=_read, args=(store_url, done, results)) for _ in range(2)]
    writers = [FORK.Process(target=_write, args=(store_url, writer, n_each)) for writer in range(8)]
    for process in (*readers, *writers):
        process.start()
    assert _join(writers, 10 * PATIENCE_SECONDS) == [0] * 8
    done.set()
    assert _join(readers, PATIENCE_SECONDS) == [0, 0]
    for turns, n_seen in (results.get(), results.get()):
        assert turns > 0 and n_seen == 8 * n_each
    with opened(store_url, read_only=True) as store:
        run = store.run(RUN, create=False)
        infos = run.rollouts(attempts=True)
        assert [(info.rollout_id, info.attempt) for info in infos] == [(i, 1) for i in range(8 * n_each)]
        assert len({info.session for info in infos}) == 8
        for rollout_id in range(8 * n_each):
            assert_same(run.load_train(rollout_id), _output(rollout_id))
        assert store.verify().ok


# -- sixteen open an old store


def _open_and_use(url: str, barrier: Any, child: int) -> None:
    import alembic.command  # noqa: F401  all arrive at the database together

    barrier.wait(PATIENCE_SECONDS)
    with SampleStore.open(url) as store:
        run = store.run(old_content.RUN)
        assert_same(run.load_train(1), old_content.train(1))
        run.record_train(100 + child, _output(child))


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["0001", "0003"])
def test_h2_sixteen_processes_that_open_an_old_store_at_once_upgrade_it_once(
    store_url: str, tmp_path: Path, revision: str
) -> None:
    put(revision, store_url, tmp_path)
    barrier = FORK.Barrier(16)
    children = [FORK.Process(target=_open_and_use, args=(store_url, barrier, child)) for child in range(16)]
    for child in children:
        child.start()
    assert _join(children, PATIENCE_SECONDS) == [0] * 16
    assert rows(store_url, "SELECT version_num FROM slime_store_version") == [(HEAD,)]
    with opened(store_url) as store:
        assert {info.rollout_id for info in store.run(old_content.RUN).rollouts("train")} >= set(range(100, 116))
        assert store.verify().ok


# -- two sessions of one run


def _record_when_told(url: str, told: Any, finished: Any) -> None:
    with run_of(url, RUN) as run:
        run.record_weight_version("1", metadata={"session": "child"})
        run.record_train(0, _output(100))
        finished.set()
        assert told.wait(PATIENCE_SECONDS)
        run.record_train(1, _output(101))


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow_on_postgresql)])
def test_two_sessions_of_one_run_are_kept_apart_and_the_older_one_says_so_once(
    store_url: str, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    context: Any = multiprocessing.get_context(method)
    with opened(store_url) as store:
        run = store.run(RUN)
        run.record_weight_version("1", metadata={"session": "parent"})
        run.record_train(0, _output(0))
        assert "two processes" not in caplog.text
        told, finished = context.Event(), context.Event()
        child = context.Process(target=_record_when_told, args=(store_url, told, finished))
        child.start()
        assert finished.wait(PATIENCE_SECONDS)
        for rollout_id in (1, 2):
            run.record_train(rollout_id, _output(rollout_id))
        told.set()
        assert _join([child], PATIENCE_SECONDS) == [0]
        warnings = [r for r in caplog.records if "two processes at once" in r.getMessage()]
        assert [r.levelno for r in warnings] == [logging.WARNING]
        assert f"by this one, session 1, and by session 2 (process {child.pid} on " in warnings[0].getMessage()
        infos = [(info.rollout_id, info.attempt, info.session) for info in run.rollouts("train", attempts=True)]
        assert infos == [(0, 1, 1), (0, 2, 2), (1, 1, 1), (1, 2, 2), (2, 1, 1)]
        for rollout_id, attempt, seed in ((0, 1, 0), (0, 2, 100), (1, 1, 1), (1, 2, 101), (2, 1, 2)):
            assert_same(run.load_train(rollout_id, attempt=attempt), _output(seed))
        notes = [(info.session, info.label, info.metadata) for info in run.weight_versions() if info.metadata]
        assert notes == [(1, "1", {"session": "parent"}), (2, "1", {"session": "child"})]


def test_a_session_that_follows_another_warns_of_nothing(store_url: str, caplog: pytest.LogCaptureFixture) -> None:
    for rollout_id in range(2):
        with run_of(store_url, RUN) as run:
            run.record_train(rollout_id, _output(rollout_id))
    assert "two processes" not in caplog.text
    assert value(store_url, "SELECT count(*) FROM sessions") == 2


# -- a reader that stays


@pytest.mark.slow
def test_h11_the_log_is_bounded_once_a_reader_that_stayed_has_gone(sqlite_url: str) -> None:
    log = Path(f"{sqlite_url.removeprefix('sqlite:///')}-wal")
    payload = make_train_output(8, 4, n_tokens=8)
    for group in payload.samples:
        group[0].metadata["noise"] = os.urandom(700_000)
    with opened(sqlite_url) as store, opened(sqlite_url, read_only=True) as reader:
        run = store.run(RUN)
        run.record_train(0, payload)
        with reader._handle.reading() as connection:
            connection.exec_driver_sql("SELECT count(*) FROM samples").scalar()
            for rollout_id in range(1, 25):
                run.record_train(rollout_id, payload)
                for group in payload.samples:
                    group[0].metadata["noise"] = os.urandom(700_000)
            assert connection.exec_driver_sql("SELECT count(*) FROM rollouts").scalar() == 1  # its own moment
            grown = log.stat().st_size
        assert grown > 65 << 20
        run.record_train(99, payload)
        assert log.stat().st_size < 8 << 20
