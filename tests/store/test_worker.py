"""The thread that works in the background: everything in order, once, whoever closes, interrupts or fails."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from typing import Any

import pytest

from slime_store.store import worker as worker_module
from slime_store.store.worker import Worker
from tests.services.threads import PATIENCE_SECONDS, in_time


class Done:
    """Notes what was done; waits at ``None`` until it may go on."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.go = threading.Event()
        self.held = threading.Event()

    def __call__(self, values: list[Any]) -> bool:
        for value in values:
            if value is None:
                self.held.set()
                assert self.go.wait(PATIENCE_SECONDS)
            elif callable(value):
                value()
            else:
                self.values.append(value)
        return True


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_what_several_threads_put_flush_and_close_is_done_once_and_in_the_order_of_each() -> None:
    done = Done()
    worker = Worker("w-order", done, most=7)

    def put(first: int) -> None:
        for i in range(300):
            worker.put(first + i)
            if i % 50 == 0:
                worker.flush()
            if i % 70 == 0:
                worker.close()

    in_time(*[lambda first=1000 * k: put(first) for k in range(4)])
    worker.close()
    for k in range(4):
        mine = [value for value in done.values if value // 1000 == k]
        assert mine == [1000 * k + i for i in range(300)]
    for thread in threads_of("w-order"):
        thread.join(PATIENCE_SECONDS)
    assert not threads_of("w-order")


def test_a_close_that_begins_before_a_put_does_not_wait_for_the_thread_of_that_put() -> None:
    done = Done()
    worker = Worker("w", done)
    worker.put(None)
    assert done.held.wait(PATIENCE_SECONDS)
    closing = threading.Thread(target=worker.close, daemon=True)
    closing.start()
    while worker._threads:
        time.sleep(0.001)
    worker.put(1)  # opens it again, and nobody will close it
    done.go.set()
    closing.join(PATIENCE_SECONDS)
    assert not closing.is_alive()
    worker.flush()
    assert done.values == [1]
    worker.close()


def test_put_waits_for_room_but_not_in_the_thread_itself() -> None:
    done = Done()
    worker = Worker("w", done, room=2)
    worker.put(lambda: [worker.put(i) for i in range(5)])
    worker.flush()
    assert done.values == list(range(5))
    worker.put(None)
    worker.put(5)
    third = threading.Thread(target=worker.put, args=(6,), daemon=True)
    third.start()
    third.join(0.1)
    assert third.is_alive()
    done.go.set()
    third.join(PATIENCE_SECONDS)
    worker.close()
    assert done.values == [*range(5), 5, 6]


def test_an_error_that_is_let_out_does_not_end_the_thread() -> None:
    done = Done()
    worker = Worker("w", done)

    def fail() -> None:
        raise SystemExit(1)

    worker.put(fail)
    worker.put(1)
    in_time(worker.flush)
    assert done.values == [1]
    worker.close()


def test_what_is_given_up_is_told() -> None:
    given_up: list[Any] = []
    go = threading.Event()
    worker = Worker("w", lambda values: go.wait(PATIENCE_SECONDS) and False, given_up.extend)
    for i in range(4):
        worker.put(i)
    go.set()
    in_time(worker.close)
    assert given_up == [1, 2, 3]


def test_two_workers_that_close_each_other_do_not_wait_for_ever() -> None:
    first, second = Done(), Done()
    both = Worker("w1", first), Worker("w2", second)
    meet = threading.Barrier(2)
    for worker, other in (both, both[::-1]):
        worker.put(lambda other=other: [meet.wait(PATIENCE_SECONDS), other.close()])
    in_time(both[0].flush, both[1].flush)


def test_without_threads_who_waits_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    done = Done()
    worker = Worker("w", done)
    worker.put(None)
    threading.Thread(target=worker.close, daemon=True).start()
    while worker._threads:
        time.sleep(0.001)

    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(worker_module._Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            worker.put(1)
        done.go.set()
        in_time(worker.flush)
    assert done.values == []
    worker.put(2)
    in_time(worker.close)
    assert done.values == [2]


def test_a_forked_child_has_nothing_that_waits_and_a_thread_of_its_own(
    recwarn: pytest.WarningsRecorder,
) -> None:
    done = Done()
    worker = Worker("w", done)
    worker.put(None)
    assert done.held.wait(PATIENCE_SECONDS)
    worker.put(1)
    pid = os.fork()
    if pid == 0:
        worker.put(2)
        worker.close()
        os._exit(0 if done.values == [2] else 1)
    assert os.waitpid(pid, 0)[1] == 0
    done.go.set()
    worker.close()
    assert done.values == [1]


def test_a_worker_that_nobody_has_any_more_does_what_waits_and_ends_its_thread() -> None:
    done = Done()
    worker = Worker("w-dropped", done)
    worker.put(None)
    worker.put(1)
    dropped = weakref.ref(worker)
    del worker
    done.go.set()
    [thread] = threads_of("w-dropped")
    thread.join(PATIENCE_SECONDS)
    gc.collect()
    assert not thread.is_alive() and dropped() is None and done.values == [1]


def test_what_is_put_when_the_process_has_begun_to_end_is_done_before_put_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = Done()
    worker = Worker("w", done)
    worker.put(lambda: worker.put(1))  # a callback's
    monkeypatch.setattr(worker_module._process, "is_ending", False)
    worker_module._flush_all()
    assert done.values == [1]
    worker.put(2)
    assert done.values == [1, 2]
    worker.close()
