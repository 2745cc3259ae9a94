"""What a store and its runs share, across process borders (case H6)."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from slime_store import SampleStore
from slime_store.config import StoreConfig
from slime_store.database import read
from slime_store.store import handle as handle_module
from slime_store.store.handle import StoreHandle


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_h6_a_child_uses_a_store_whose_parent_was_forked_amid_opening_it(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    SampleStore.open(store_url).close()
    parent, create = os.getpid(), handle_module.create_store_engine
    inside, forked = threading.Event(), threading.Event()

    def slow_create(config: StoreConfig) -> Any:
        inside.set()
        assert os.getpid() != parent or forked.wait(60)
        return create(config)

    monkeypatch.setattr(handle_module, "create_store_engine", slow_create)
    handle = StoreHandle(StoreConfig.parse(store_url))
    thread = threading.Thread(target=lambda: handle.engine)
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # not to hang
        os._exit(0 if SampleStore(handle).runs() == [] else 1)
    forked.set()
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    handle.close()


def test_a_thread_that_comes_while_a_store_opens_finds_it_open_as_a_whole(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    SampleStore.open(sqlite_url).close()
    handle = StoreHandle(StoreConfig.parse(sqlite_url))
    identity, errors = StoreHandle._file_identity, list[BaseException]()

    def read() -> None:
        try:
            with handle.reading():
                pass
        except BaseException as error:
            errors.append(error)

    def slow_identity(self: StoreHandle) -> Any:
        if threading.current_thread() is threading.main_thread():
            other.start()
            other.join(0.2)  # either it waits for the opening, or it has read
        return identity(self)

    other = threading.Thread(target=read)
    with monkeypatch.context() as patched:
        patched.setattr(StoreHandle, "_file_identity", slow_identity)
        handle.engine  # noqa: B018
        other.join(60)
    assert errors == []
    handle.close()


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_connection_that_is_in_use_while_the_store_is_closed_is_closed_when_its_transaction_ends(
    store_url: str, has_begun: bool
) -> None:
    store = SampleStore.open(store_url)
    engine = store._handle.engine
    connections: list[Any] = []
    inside, closed = threading.Event(), threading.Event()

    def work() -> None:
        if not has_begun:
            inside.set()
            closed.wait(60)
        with read(engine) as connection:
            connections.append(connection.connection.driver_connection)
            inside.set()
            assert closed.wait(60)
            connection.exec_driver_sql("SELECT 1")

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(60)
    store.close()
    closed.set()
    thread.join()
    with pytest.raises(Exception, match="closed"):
        connections[0].execute("SELECT 1")
