"""One thread that works in the background, which an interrupt at any line of the caller's neither stops nor locks up.

Ctrl-C and signal handlers, be it one that raises or one that closes the store, come between any two lines of the main
thread. `threading.Condition`, and with it `queue.Queue`, `threading.Event`, semaphores and executors, are entered by
functions of Python, where an interrupt can come between taking a lock and the line that would let go of it: the other
threads then wait for ever. So what is handed over here goes through `collections.deque`, `queue.SimpleQueue` and lists,
each call of which is one step. The one lock is taken by whoever does the work, which is not the caller's thread unless
no other can be started.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from slime_store.database import members, tell_after_fork
from slime_store.store.exiting import at_exit

_POLL_SECONDS = 0.002
_PATIENCE_SECONDS = 0.05

_log = logging.getLogger("slime_store")

_living: weakref.WeakSet[Worker] = weakref.WeakSet()


class _Process:
    """What is true of the whole process.

    Attributes:
        is_ending: what waits was written, for the last time by itself.
    """

    def __init__(self) -> None:
        self.after_fork()
        tell_after_fork(self)

    def after_fork(self) -> None:
        self.is_ending = False


_process = _Process()


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
        given_up: called with the items that are given up.
        most: items that are handed over at once.
        room: items that may wait or be under way, about: as many more as threads put at the same moment. `put` waits
            for room. None for any number.
    """

    _working: threading.Lock
    _owner: int | None
    _waiting: deque[_Item]
    _under_way: int
    _threads: list[_Thread]
    _awaits: Worker | None

    def __init__(
        self,
        name: str,
        do: Callable[[list[Any]], bool],
        given_up: Callable[[list[Any]], None] | None = None,
        *,
        most: int = 1,
        room: int | None = None,
    ) -> None:
        self._name = name
        self._do = do
        self._given_up = given_up
        self._most = most
        self._room = room
        self.after_fork()
        tell_after_fork(self)
        _living.add(self)
        at_exit(_flush_all)

    def put(self, value: Any) -> None:
        """Queue an item. In the thread itself, where `do` or its callbacks put something, it never waits for room.

        While the process ends, when nothing is done by itself any more, it waits until the item is done.

        Raises:
            RuntimeError: no thread can be started; the item is not queued.
        """
        item = _Item(value)
        try:
            while self._is_full():
                time.sleep(_POLL_SECONDS)
            self._waiting.append(item)
            self._wake()
        except BaseException:
            with contextlib.suppress(ValueError):  # else it was not queued yet, or is being done
                self._waiting.remove(item)
            raise
        if _process.is_ending:
            self.flush()

    def flush(self) -> None:
        """Wait until everything put so far is done, not for what comes meanwhile; in the thread itself do nothing."""
        if self._is_own() or self.is_idle():
            return
        done = self._mark()
        threads = list(self._threads)
        for thread in threads:
            thread.wake(self)
        self._wait(done, threads)

    def close(self) -> None:
        """Do as `flush`, and let the thread end."""
        done = None if self._is_own() or self.is_idle() else self._mark()
        threads = list(self._threads)
        for thread in threads:
            thread.wake(self)
            thread.end()
        for thread in threads:
            self._forget(thread)
        if done is not None:
            self._wait(done, threads)

    def is_idle(self) -> bool:
        """Tell whether nothing waits or is under way."""
        return not self._waiting and not self._working.locked()

    def after_fork(self) -> None:
        """Start afresh; in a forked child the threads and what waits are the parent's."""
        self._working = threading.Lock()
        self._owner = None
        self._waiting = deque()
        self._under_way = 0
        self._threads = []
        self._awaits = None

    def work_off(self) -> None:
        """Do what waits, in this thread, alone."""
        with self._working:
            try:
                self._owner = threading.get_ident()
                while self._waiting:
                    self._work_once()
            finally:
                self._owner = None

    def _work_once(self) -> None:
        items: list[_Item] = []
        try:
            self._take(items, self._most)
            values = _values(items)
            if values and not self._do(values):
                rest: list[_Item] = []
                self._take(rest, None)
                items += rest
                if self._given_up is not None and _values(rest):
                    self._given_up(_values(rest))
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

    def _is_full(self) -> bool:
        return self._room is not None and len(self._waiting) + self._under_way >= self._room and not self._is_own()

    def _mark(self) -> queue.SimpleQueue[None]:
        done: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._waiting.append(_Item(done=done))
        return done

    def _wait(self, done: queue.SimpleQueue[None], threads: Iterable[_Thread]) -> None:
        """Wait for a mark; not where it would never come, since this thread works for one whom ours waits for."""
        mine = _served_here()
        try:
            if mine is not None:
                mine._awaits = self
            helpers = list(threads)
            while mine is None or not self._waits_for(mine):
                try:
                    return done.get(timeout=_PATIENCE_SECONDS)
                except queue.Empty:
                    if any(thread.is_running for thread in helpers):
                        continue
                try:  # none is there, or they were ended before the mark was set
                    helpers = [self._started()]
                    helpers[0].wake(self)
                    helpers[0].end()
                except RuntimeError:  # no more threads, or the interpreter is shutting down
                    self.work_off()
        finally:
            if mine is not None:
                mine._awaits = None

    def _wake(self) -> None:
        """Have a thread look what waits, one that has not been ended meanwhile."""
        while True:
            thread = next((each for each in list(self._threads) if each.is_running and not each.is_ended), None)
            if thread is not None:
                thread.wake(self)
            else:
                at_exit(_flush_all)  # multiprocessing may be loaded by now
                thread = self._started()
                thread.wake(self)
            if not thread.is_ended:
                return

    def _started(self) -> _Thread:
        for thread in list(self._threads):
            if thread.is_over:
                self._forget(thread)
        thread = _Thread(self._name, self)
        self._threads.append(thread)  # before it starts: `close` ends it, wherever an interrupt comes
        try:
            thread.start()
        except BaseException:  # it may run all the same
            thread.end()
            thread.is_over = True
            self._forget(thread)
            raise
        return thread

    def _forget(self, thread: _Thread) -> None:
        with contextlib.suppress(ValueError):  # another one was faster
            self._threads.remove(thread)

    def _is_own(self) -> bool:
        return self._owner == threading.get_ident()

    def _waits_for(self, other: Worker) -> bool:
        worker, seen = self._awaits, [self]
        while worker is not None and worker not in seen:
            if worker is other:
                return True
            seen.append(worker)
            worker = worker._awaits
        return False


class _Thread(threading.Thread):
    """Works for a worker when it is woken. It keeps the worker alive only while something waits, and ends with it.

    Attributes:
        serves: the worker, while it works.
        is_running: from its first line to its last. One that an interrupt kept from being started never is; and after
            an interrupt in Python's own `is_alive` that says no for ever.
        is_over: it has ended, or could not be started.
    """

    def __init__(self, name: str, worker: Worker) -> None:
        super().__init__(name=name, daemon=True)
        self.serves: Worker | None = None
        self.is_running = self.is_over = False
        self._woken: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        self._end = weakref.finalize(worker, self._woken.put, None)
        self._end.atexit = False

    @property
    def is_ended(self) -> bool:
        """Whether it looks at nothing any more that comes after this."""
        return not self._end.alive

    def wake(self, worker: Worker) -> None:
        """Have the thread look what waits."""
        self._woken.put(worker)

    def end(self) -> None:
        """End the thread when it has done what it was woken for."""
        self._end()

    def run(self) -> None:
        self.is_running = True
        try:
            while (worker := self._woken.get()) is not None:
                self.serves = worker
                try:
                    worker.work_off()
                except BaseException:
                    _log.exception("%s failed, and goes on", self.name)
                    self.wake(worker)
                self.serves = None
                del worker
        finally:
            self.is_running, self.is_over = False, True


def _values(items: Iterable[_Item]) -> list[Any]:
    return [item.value for item in items if item.done is None]


def _served_here() -> Worker | None:
    thread = threading.current_thread()
    return thread.serves if isinstance(thread, _Thread) else None


def _flush_all() -> None:
    _process.is_ending = True
    while busy := [worker for worker in members(_living) if not worker.is_idle()]:
        for worker in busy:
            worker.flush()
