"""Section H of the cases: one store used by many processes and threads at once (H1, H2, H6, H7)."""

from __future__ import annotations

import asyncio
import copy
import gc
import itertools
import multiprocessing
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, make_url, text
from sqlalchemy.pool import Pool

from slime_store import SampleFilter, SampleStore
from slime_store.errors import DatabaseError, StoreNotPicklableError
from slime_store.repositories.runs import RunRepository
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from tests.cases.children import (
    N_EACH,
    PATIENCE_SECONDS,
    ids_of,
    in_a_new_process,
    join_all,
    names_of_runs,
    output_of,
    record_all,
)
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
N_CHILDREN = 4


def _assert_holds(url: str, rollout_ids: range, name: str = "contract") -> None:
    with opened(url, read_only=True) as store:
        run = store.run(name, create=False)
        assert [(info.rollout_id, info.attempt) for info in run.rollouts(attempts=True)] == [
            (rollout_id, 1) for rollout_id in rollout_ids
        ]
        for rollout_id in rollout_ids:
            assert_same(run.load_train(rollout_id), output_of(rollout_id))


# -- H6: a store crosses the border between processes


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_h6_four_children_write_to_the_store_they_were_given(store_url: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    with opened(store_url) as store:
        run = store.run("contract")
        run.record_train(0, output_of(0))  # the parent has connections and a session
        children = [context.Process(target=record_all, args=(run, ids_of(child))) for child in range(1, N_CHILDREN + 1)]
        for child in children:
            child.start()
        record_all(run, range(1, N_EACH))  # and goes on meanwhile
        assert join_all(children) == [0] * N_CHILDREN
        sessions = {info.session for info in run.rollouts()}
        assert len(sessions) == 1 + N_CHILDREN  # weight version labels count apart in each process
    _assert_holds(store_url, range((N_CHILDREN + 1) * N_EACH))


def test_h6_a_fork_neither_loses_nor_repeats_what_waits_in_the_background(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run("contract")
        for rollout_id in range(4):
            run.record_train(rollout_id, output_of(rollout_id), background=True)

        def close_in_the_child() -> None:
            run.flush()  # of the child: it has nothing to wait for
            store.close()

        child = FORK.Process(target=close_in_the_child)
        child.start()
        assert join_all([child]) == [0]
        run.record_train(4, output_of(4))
    _assert_holds(store_url, range(5))


@pytest.fixture
def connections() -> Iterator[list[Any]]:
    """The database connections that are open, of every store."""
    kept: list[Any] = []

    def note(connection: Any, _record: Any) -> None:
        kept.append(connection)

    def forget(connection: Any, _record: Any) -> None:
        kept[:] = [each for each in kept if each is not connection]

    event.listen(Pool, "connect", note)
    event.listen(Pool, "close", forget)
    yield kept
    event.remove(Pool, "connect", note)
    event.remove(Pool, "close", forget)


def test_h6_a_pickled_store_reopens_by_its_address(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run("contract")
        run.record_train(0, output_of(0))
        for there in (pickle.loads(pickle.dumps(store)), copy.deepcopy(store)):
            with there:
                assert names_of_runs(there) == ["contract"]
                assert repr(there) == repr(store)
        assert in_a_new_process(names_of_runs, store) == ["contract"]
        assert_same(in_a_new_process(run.load_train, 0), output_of(0))
    assert_same(loaded_train(store_url, 0), output_of(0))  # closing the copies closed nothing here


def test_h6_a_run_that_was_unpickled_lets_go_of_its_connections_when_it_is_dropped(
    store_url: str, connections: list[Any]
) -> None:
    with opened(store_url) as store:
        run = store.run("contract")
        run.record_train(0, output_of(0))
        n_before = len(connections)
        there = pickle.loads(pickle.dumps(run))
        assert_same(there.load_train(0), output_of(0))
        assert len(connections) > n_before
        del there
        gc.collect()
        assert len(connections) == n_before
        assert_same(run.load_train(0), output_of(0))


def test_h6_a_pickled_read_only_store_stays_read_only(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, output_of(0))
    with opened(store_url, read_only=True) as store, pickle.loads(pickle.dumps(store)) as there:
        assert "read_only=True" in repr(there)
        assert_same(there.run("contract").load_train(0), output_of(0))


def test_h6_a_relative_path_means_the_same_file_after_the_process_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with SampleStore.open("store.db") as store:
        store.run("contract").record_train(0, output_of(0))
        pickled = pickle.dumps(store)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pickle.loads(pickled) as there:
        assert_same(there.run("contract").load_train(0), output_of(0))


def test_h6_an_in_memory_store_refuses_pickling_and_says_what_to_do() -> None:
    with SampleStore.open(":memory:") as store:
        run = store.run("contract")
        for thing in (store, run):
            with pytest.raises(StoreNotPicklableError, match="use a file or PostgreSQL"):
                pickle.dumps(thing)
        run.record_train(0, output_of(0))  # it goes on
        assert_same(run.load_train(0), output_of(0))


PASSWORD = "p@ss%2F"


@pytest.fixture
def url_with_password(postgres_url: str) -> Iterator[str]:
    """The URL of an empty database for a role that may only use it, whose password is unkind to URLs."""
    database = make_url(postgres_url).database
    engine = create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE ROLE trainer LOGIN PASSWORD '{PASSWORD}'"))
        connection.execute(text(f"GRANT CREATE, CONNECT ON DATABASE {database} TO trainer"))
        yield make_url(postgres_url).set(username="trainer", password=PASSWORD).render_as_string(hide_password=False)
        connection.execute(text("DROP OWNED BY trainer CASCADE"))
        connection.execute(text("DROP ROLE trainer"))
    engine.dispose()


def _shows_the_password(shown: str) -> bool:
    return PASSWORD in shown or "p%40ss" in shown or "ss%252F" in shown


@pytest.mark.postgresql
def test_h6_a_password_crosses_processes_and_is_never_shown(url_with_password: str) -> None:
    assert "p%40ss%252F" in url_with_password
    with SampleStore.open(url_with_password) as store:
        run = store.run("contract")
        run.record_train(0, output_of(0))
        assert_same(pickle.loads(pickle.dumps(run)).load_train(0), output_of(0))
        assert in_a_new_process(names_of_runs, store) == ["contract"]
        child = FORK.Process(target=record_all, args=(run, range(1, 3)))
        child.start()
        assert join_all([child]) == [0]
        for shown in (repr(store), str(store), store.url, repr(run), str(run), f"{vars(store)}", repr(store.stats())):
            assert not _shows_the_password(shown), shown
        assert "trainer:***@" in repr(store)
    _assert_holds(url_with_password, range(3))


@pytest.mark.postgresql
def test_h6_an_error_never_shows_the_password(
    url_with_password: str, postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = make_url(url_with_password)
    wrong = url.set(database="missing"), url.set(username="nobody"), url.update_query_dict({"port": "1"})
    for target in wrong:
        with pytest.raises(DatabaseError) as caught:
            SampleStore.open(target)
        chain: BaseException | None = caught.value
        assert not _shows_the_password(str(chain)) and not _shows_the_password(repr(chain))
        again = pickle.loads(pickle.dumps(chain))
        assert type(again) is type(chain) and str(again) == str(chain)
    assert not _shows_the_password(caplog.text)


# -- H7: threads


@pytest.fixture(params=["file", "memory", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def any_store_url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return ":memory:"
    return str(request.getfixturevalue("sqlite_url" if request.param == "file" else "postgres_url"))


def test_h7_eight_threads_record_and_load_through_one_store(any_store_url: str) -> None:
    barrier = threading.Barrier(8)
    with opened(any_store_url) as store:
        run = store.run("contract")

        def work(thread: int) -> None:
            barrier.wait(PATIENCE_SECONDS)
            record_all(run, ids_of(thread))
            for rollout_id in ids_of(thread):
                found = list(run.iter_samples(SampleFilter(rollout_ids=rollout_id), batch_size=3))
                assert_same(found, [sample for group in output_of(rollout_id).samples for sample in group])
            assert store.runs()[0].name == "contract"

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert [info.rollout_id for info in run.rollouts(attempts=True)] == list(range(8 * N_EACH))
        assert {info.session for info in run.rollouts()} == {1}


def test_h7_threads_that_record_the_same_rollout_make_one_attempt_each(any_store_url: str) -> None:
    with opened(any_store_url) as store, ThreadPoolExecutor(8) as pool:
        run = store.run("contract")
        infos = list(pool.map(lambda seed: run.record_train(0, output_of(seed)), range(16)))
        assert sorted(info.attempt for info in infos) == list(range(1, 17))
        for seed, info in enumerate(infos):
            assert_same(run.load_train(0, attempt=info.attempt), output_of(seed))


def test_h7_coroutines_record_without_waiting_for_the_disk(any_store_url: str) -> None:
    with opened(any_store_url) as store:
        run = store.run("contract")
        run.record_train(6, output_of(6))
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with store._handle.writing("keep others from writing") as connection:
                RunRepository(connection).lock(run._pk)
                held.set()
                release.wait(PATIENCE_SECONDS)

        holder = threading.Thread(target=hold)
        holder.start()
        assert held.wait(PATIENCE_SECONDS)

        async def record_all() -> list[Any]:
            futures = [run.record_train(i, output_of(i), background=True) for i in range(2)]  # as many as may wait
            await asyncio.sleep(0.05)
            assert not any(future.done() for future in futures), "the call waited until the store could be written to"
            release.set()
            futures += [run.record_train(i, output_of(i), background=True) for i in range(2, 6)]
            return await asyncio.gather(*map(asyncio.wrap_future, futures))

        infos = asyncio.run(record_all())
        holder.join()
        assert [info.rollout_id for info in infos] == list(range(6))
        assert_same([run.load_train(i) for i in range(6)], [output_of(i) for i in range(6)])


# -- H2: many processes open the same new store


def _open_and_use(urls: list[str], barrier: Any, child: int) -> None:
    for url in urls:
        barrier.wait(PATIENCE_SECONDS)
        with SampleStore.open(url) as store:
            store.run("contract").record_train(child, output_of(child))


def _fresh_urls(request: pytest.FixtureRequest, tmp_path: Path, database: str, stack: Any) -> list[str]:
    if database == "sqlite":
        return [str(tmp_path / f"{number}.db") for number in range(3)]
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return [stack.enter_context(server.database()) for _ in range(3)]


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_h2_eight_processes_make_the_same_new_store_at_once(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> None:
    from contextlib import ExitStack

    with ExitStack() as stack:
        urls = _fresh_urls(request, tmp_path, database, stack)
        barrier = FORK.Barrier(8)
        children = [FORK.Process(target=_open_and_use, args=(urls, barrier, child)) for child in range(8)]
        for process in children:
            process.start()
        assert join_all(children) == [0] * 8
        for url in urls:
            _assert_holds(url, range(8))
    if database == "sqlite":
        kept = {path.name.removesuffix("-wal").removesuffix("-shm") for path in tmp_path.iterdir()}
        assert kept == {f"{number}.db" for number in range(3)}  # no draft is left


# -- H1: writers do not get in each other's way, nor in a reader's


def _write(url: str, writer: int) -> None:
    with run_of(url) as run:
        for rollout_id in ids_of(writer, 10):
            run.record_train(rollout_id, output_of(rollout_id))


def _read_until(url: str, done: Any, results: Any) -> None:
    """Load at random while others write: whatever is listed is whole."""
    with opened(url, read_only=True) as store:
        run = store.run("contract", create=False)
        seen: list[int] = []
        for turn in itertools.count():
            is_last = done.is_set()
            ids = [info.rollout_id for info in run.rollouts()]
            assert set(seen) <= set(ids)
            seen = ids
            if ids:
                rollout_id = ids[turn * 7 % len(ids)]
                assert_same(run.load_train(rollout_id), output_of(rollout_id))
                found = list(run.iter_samples(SampleFilter(rollout_ids=rollout_id), fields=["reward"]))
                assert len(found) == 4
            if is_last:
                break
        results.put((turn, len(seen)))


def test_h1_four_writers_and_a_reader_meet_no_error(store_url: str) -> None:
    with opened(store_url) as store:
        store.run("contract")
    done, results = FORK.Event(), FORK.SimpleQueue()
    reader = FORK.Process(target=_read_until, args=(store_url, done, results))
    writers = [FORK.Process(target=_write, args=(store_url, writer)) for writer in range(4)]
    for process in (reader, *writers):
        process.start()
    assert join_all(writers) == [0] * 4
    done.set()
    assert join_all([reader]) == [0]
    turns, n_seen = results.get()
    assert turns > 0 and n_seen == 40
    _assert_holds(store_url, range(40))


def test_h1_a_transaction_that_reads_first_does_not_lose_its_place_to_another_writer(store_url: str) -> None:
    """A read that turns into a write fails at once in WAL mode, whatever the timeout; a record does both."""
    with opened(store_url) as one, opened(store_url) as other:
        runs = one.run("contract"), other.run("contract")
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda run: [run.record_train(0, [[make_sample(i)]]) for i in range(20)], runs))
        attempts = [info.attempt for info in runs[0].rollouts(attempts=True)]
        assert attempts == list(range(1, 41))
