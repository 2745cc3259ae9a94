"""Engines and process borders (case H6)."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, forks, members, read, tell_after_fork, write
from tests.database.conftest import MakeEngine, insert

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


def numbers(engine: Engine) -> list[int]:
    with read(engine) as connection:
        return [row[0] for row in connection.execute(text("SELECT a FROM t ORDER BY a"))]


def insert_with_inherited_engine(engine: Engine, child: int) -> None:
    for i in range(10):
        insert(engine, child * 100 + i)


def insert_with_own_engine(url: str, child: int) -> None:
    engine = create_store_engine(StoreConfig.parse(url))
    insert_with_inherited_engine(engine, child)
    engine.dispose()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_h6_four_children_write_while_the_parent_goes_on(make_store: MakeEngine, store_url: str, method: str) -> None:
    engine = make_store(store_url)
    insert(engine, 1)  # the parent has a connection in its pool
    context = multiprocessing.get_context(method)
    children = [
        context.Process(target=insert_with_inherited_engine, args=(engine, child))
        if method == "fork"
        else context.Process(target=insert_with_own_engine, args=(store_url, child))
        for child in range(1, 5)
    ]
    for process in children:
        process.start()
    insert(engine, 2)
    for process in children:
        process.join(60)
        assert process.exitcode == 0
    assert numbers(engine) == [1, 2, *(child * 100 + i for child in range(1, 5) for i in range(10))]


def test_h6_a_childs_commits_outlive_the_parents_connections(make_store: MakeEngine, tmp_path: Path) -> None:
    engine = make_store(tmp_path / "s.db")
    insert(engine, 1)
    to_child, to_parent = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:  # killed without a chance to close anything
        insert(engine, 2)
        os.write(to_parent[1], b"x")
        os.read(to_child[0], 1)
        insert(engine, 3)
        os._exit(0)
    os.read(to_parent[0], 1)
    engine.dispose()  # would delete the write-ahead log beneath the child, had it inherited a connection
    os.write(to_child[1], b"x")
    os.waitpid(pid, 0)
    assert numbers(engine) == [1, 2, 3]


def test_h6_a_fork_waits_for_the_transaction_of_another_thread(make_store: MakeEngine, tmp_path: Path) -> None:
    engine = make_store(tmp_path / "s.db")
    inside, done = threading.Event(), []

    def slow_write() -> None:
        with write(engine) as connection:
            connection.execute(text("INSERT INTO t VALUES (1, '')"))
            inside.set()
            time.sleep(0.3)
            done.append(True)

    thread = threading.Thread(target=slow_write)
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if done == [True] and numbers(engine) == [1] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()


def test_h6_a_thread_may_fork_inside_its_own_transaction(make_store: MakeEngine, store_url: str) -> None:
    engine = make_store(store_url)
    with write(engine) as connection:
        connection.execute(text("INSERT INTO t VALUES (1, '')"))
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    assert numbers(engine) == [1]


def test_an_in_memory_store_is_copied_by_a_fork(make_store: MakeEngine) -> None:
    engine = make_store("sqlite://")
    insert(engine, 1)
    pid = os.fork()
    if pid == 0:
        insert(engine, 2)
        os._exit(0 if numbers(engine) == [1, 2] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert numbers(engine) == [1]


def test_an_engine_that_nobody_holds_is_collected(make_store: MakeEngine, tmp_path: Path) -> None:
    make_store(tmp_path / "s.db")
    engine = create_store_engine(StoreConfig.parse(tmp_path / "s.db"))
    insert(engine, 1)
    engine.dispose()
    reference = weakref.ref(engine)
    del engine
    gc.collect()
    assert reference() is None


def fork_during_a_write(engine: Engine) -> float:
    """Fork while another thread is inside a transaction that ends only afterwards; return how long that took."""
    inside, forked = threading.Event(), threading.Event()

    def long_write() -> None:
        with write(engine) as connection:
            connection.execute(text("INSERT INTO t VALUES (1, '')"))
            inside.set()
            assert forked.wait(60)

    thread = threading.Thread(target=long_write)
    thread.start()
    inside.wait()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    took = time.monotonic() - started
    forked.set()
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    return took


@pytest.mark.parametrize("target", ["sqlite://", "file"])
def test_h6_a_fork_that_waits_too_long_goes_on_and_says_so(
    make_store: MakeEngine,
    tmp_path: Path,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(forks, "FORK_WAIT_SECONDS", 0.2)
    engine = make_store(tmp_path / "s.db" if target == "file" else target)
    with caplog.at_level(logging.WARNING, "slime_store"):
        assert fork_during_a_write(engine) >= 0.2
    [record] = caplog.records
    assert "forks while a transaction of another thread is still running after 0.2 s" in record.getMessage()
    assert numbers(engine) == [1]


@pytest.mark.postgresql
def test_h6_transactions_on_postgresql_hold_no_fork_up(
    make_store: MakeEngine, postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_store(postgres_url)
    make_store(tmp_path / "s.db")  # nor where there is an idle SQLite store as well
    assert fork_during_a_write(engine) < forks.FORK_WAIT_SECONDS / 2
    assert caplog.records == []
    assert numbers(engine) == [1]


def test_what_wants_to_know_of_a_fork_is_told_in_the_child_alone() -> None:
    class Counter:
        forks = 0

        def after_fork(self) -> None:
            self.forks += 1

    counter = Counter()
    tell_after_fork(counter)
    pid = os.fork()
    if pid == 0:
        os._exit(counter.forks)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert counter.forks == 0
    reference = weakref.ref(counter)
    del counter
    assert reference() is None


def test_the_gate_stays_closed_until_the_last_of_several_forks_has_ended() -> None:
    gate = forks._Gate()
    first = threading.Thread(target=gate.close)
    first.start()
    first.join()
    gate.close()
    gate.open()  # of this thread
    assert gate.forking
    assert not gate._begin(forks._Transaction(threading.get_ident()))


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, also in a process that was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_h6_ctrl_c_while_a_fork_waits_ends_neither_the_waiting_nor_is_it_lost(
    make_store: MakeEngine, tmp_path: Path
) -> None:
    engine = make_store(f"sqlite:///{tmp_path / 'store.db'}")
    inside, interrupted = threading.Event(), False

    def write_long() -> None:
        with write(engine) as connection:
            inside.set()
            time.sleep(0.6)
            connection.exec_driver_sql("INSERT INTO t VALUES (1, '')")

    other = threading.Thread(target=write_long)
    other.start()
    assert inside.wait(60)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    pid = 0
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if numbers(engine) == [1] else 1)
        for _ in range(6000):
            time.sleep(0.01)
    except KeyboardInterrupt:
        interrupted = True
    other.join()
    assert interrupted
    assert os.waitpid(pid, 0)[1] == 0  # it saw what the fork waited for


@pytest.mark.usefixtures("ctrl_c")
def test_h6_ctrl_c_while_a_fork_closes_connections_leaves_none_open_and_is_not_lost(
    make_store: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = [make_store(tmp_path / f"{name}.db") for name in "ab"]
    for engine in engines:
        insert(engine, 1)  # leaves a connection in its pool
    closed: set[str] = set()
    interrupts, interrupted = iter([True]), False
    original = Engine.dispose

    def dispose(self: Engine, close: bool = True) -> None:
        if next(interrupts, False):
            raise KeyboardInterrupt
        original(self, close)
        closed.update({str(self.url.database)} if close else ())  # not what a child leaves to its parent

    monkeypatch.setattr(Engine, "dispose", dispose)
    pid = 0
    try:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if {str(engine.url.database) for engine in engines} <= closed else 1)
        for _ in range(1000):
            time.sleep(0.01)
    except KeyboardInterrupt:
        interrupted = True
    assert os.waitpid(pid, 0)[1] == 0
    assert interrupted


def test_a_set_is_walked_while_another_thread_adds_to_it() -> None:
    class Thing:
        pass

    things: weakref.WeakSet[Thing] = weakref.WeakSet()
    kept, stop = [Thing() for _ in range(50)], threading.Event()
    things.update(kept)

    def add() -> None:
        while not stop.is_set():
            thing = Thing()
            things.add(thing)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=add)
    thread.start()
    try:
        for _ in range(300):
            assert set(kept) <= set(members(things))
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
