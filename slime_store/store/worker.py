"""One thread that works in the background, which an interrupt at any line of the caller's neither stops nor locks up.

Ctrl-C and signal handlers, be it one that raises or one that closes the store, come between any two lines of the main
thread. `threading.Condition`, and with it `queue.Queue`, `threading.Event`, semaphores and executors, are entered by
functions of Python, where an interrupt can come between taking a lock and the line that would let go of it: the other
threads then wait for ever. Here are only locks that ``with`` takes without a line between, `queue.SimpleQueue` and
`collections.deque`, each call of which is one step; and no lock is held while anything waits.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from slime_store.database import tell_after_fork
from slime_store.store.exiting import at_exit

_POLL_SECONDS = 0.002
_PATIENCE_SECONDS = 0.05

_living: weakref.WeakSet[Worker] = weakref.WeakSet()


@dataclass(eq=False)
class _Item:
    """What was put; or a mark, which is told when everything before it is done."""

    value: Any = None
    done: queue.SimpleQueue[None] | None = None


class Worker:
    """Does what is put, in its order, in one thread: it starts with the first item and again after `close`.

    A process that ends by itself does first what waits. In a forked child nothing waits: that is the parent's.

    Args:
        name: the thread's.
        do: called with the next items, up to ``most``, in the thread. It catches its errors; False gives up everything
            that waits.
        most: items that are handed over at once.
        room: items that may wait or be under way; `put` waits for room. None for any number.
    """

    _lock: threading.RLock
    _working: threading.Lock
    _local: threading.local
    _waiting: deque[_Item]
    _under_way: int
    _thread: _Thread | None

    def __init__(self, name: str, do: Callable[[list[Any]], bool], *, most: int = 1, room: int | None = None) -> None:
        self._name = name
        self._do = do
        self._most = most
        self._room = room
        self.after_fork()
        tell_after_fork(self)

    def put(self, value: Any) -> None:
        """Queue an item. In the thread itself, where `do` or its callbacks put something, it never waits for room.

        Raises:
            RuntimeError: no thread can be started; the item is not queued.
        """
        item = _Item(value)
        try:
            while not self._queued(item):
                time.sleep(_POLL_SECONDS)
            self._wake()
        except BaseException:
            with contextlib.suppress(ValueError):  # else it is being done
                self._waiting.remove(item)
            raise

    def flush(self) -> None:
        """Wait until everything put so far is done, not for what comes meanwhile; in the thread itself do nothing."""
        if self._is_own() or self._is_idle():
            return
        done = self._mark()
        thread = self._thread
        if thread is not None:
            thread.wake(self)
        self._wait(done)

    def close(self) -> None:
        """Do as `flush`, and let the thread end."""
        done = None if self._is_own() or self._is_idle() else self._mark()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.wake(self)
            thread.end()
        if done is not None:
            self._wait(done)

    def after_fork(self) -> None:
        """Start afresh; in a forked child the thread and what waits are the parent's."""
        self._lock = threading.RLock()
        self._working = threading.Lock()
        self._local = threading.local()
        self._waiting = deque()
        self._under_way = 0
        self._thread = None

    def work_off(self) -> None:
        """Do what waits, in this thread, alone."""
        self._local.depth = getattr(self._local, "depth", 0) + 1
        try:
            with self._working:
                while self._waiting:
                    self._work_once()
        finally:
            self._local.depth -= 1

    def _work_once(self) -> None:
        items: list[_Item] = []
        try:
            self._take(items, self._most)
            values = [item.value for item in items if item.done is None]
            if values and not self._do(values):
                self._take(items, None)
        finally:
            self._under_way = 0
            for item in items:
                if item.done is not None:
                    item.done.put(None)

    def _take(self, items: list[_Item], most: int | None) -> None:
        with contextlib.suppress(IndexError):
            while most is None or len(items) < most:
                self._under_way = len(items) + 1  # before it is taken: it is always counted somewhere
                items.append(self._waiting.popleft())
        self._under_way = len(items)

    def _queued(self, item: _Item) -> bool:
        with self._lock:
            is_full = self._room is not None and len(self._waiting) + self._under_way >= self._room
            if is_full and not self._is_own():
                return False
            self._waiting.append(item)
            return True

    def _mark(self) -> queue.SimpleQueue[None]:
        done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiting.append(_Item(done=done))
        return done

    def _wait(self, done: queue.SimpleQueue[None]) -> None:
        helper: _Thread | None = None
        while True:
            try:
                return done.get(timeout=_PATIENCE_SECONDS)
            except queue.Empty:
                if any(thread is not None and thread.is_alive() for thread in (self._thread, helper)):
                    continue
            try:  # the thread was ended before it saw the mark, or has died
                helper = _Thread(self._name, self)
                helper.start()
                helper.wake(self)
                helper.end()
            except RuntimeError:  # no more threads, or the interpreter is shutting down
                self.work_off()

    def _wake(self) -> None:
        with self._lock:
            thread = self._thread
            if thread is None or not thread.is_alive():
                thread = _Thread(self._name, self)
                thread.start()
                replaced, self._thread = self._thread, thread
                if replaced is not None:  # it has died, or a signal handler was faster
                    replaced.end()
                _living.add(self)
                at_exit(_flush_all)
            thread.wake(self)

    def _is_idle(self) -> bool:
        return not self._waiting and not self._working.locked()

    def _is_own(self) -> bool:
        return getattr(self._local, "depth", 0) > 0


class _Thread(threading.Thread):
    """Works for a worker when it is woken. It keeps the worker alive only while something waits, and ends with it."""

    def __init__(self, name: str, worker: Worker) -> None:
        super().__init__(name=name, daemon=True)
        self._woken: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        self._end = weakref.finalize(worker, self._woken.put, None)
        self._end.atexit = False

    def wake(self, worker: Worker) -> None:
        """Have the thread look what waits."""
        self._woken.put(worker)

    def end(self) -> None:
        """End the thread when it has done what it was woken for."""
        self._end()

    def run(self) -> None:
        while (worker := self._woken.get()) is not None:
            worker.work_off()
            del worker


def _flush_all() -> None:
    for worker in list(_living):
        worker.flush()
