"""Recording behind the caller's back, without losing a failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from slime_store.database import tell_after_fork
from slime_store.errors import BackgroundRecordError

T = TypeVar("T")

MAX_PENDING = 4
"""Rollouts that may wait to be written; one more, and the caller waits. Each holds its encoded arrays in memory."""

_log = logging.getLogger("slime_store")


class BackgroundWriter:
    """One writing thread, started on first use, that works in the order of submission.

    A failure is on the task's future, is logged, and is raised once by whichever comes first of ``raise_failure``,
    ``flush`` and ``close``.
    """

    _lock: threading.Lock
    _places: threading.BoundedSemaphore
    _local: threading.local
    _executor: ThreadPoolExecutor | None
    _pending: set[Future[Any]]
    _failures: list[BackgroundRecordError]

    def __init__(self) -> None:
        self.after_fork()
        tell_after_fork(self)

    def submit(self, what: str, task: Callable[[], T]) -> Future[T]:
        """Queue a task; blocks while ``MAX_PENDING`` tasks are waiting.

        A task that is submitted by another one's callback, on the writing thread itself, never waits: it would wait for
        itself.
        """
        places = None if self._is_writer() else self._places
        if places is not None:
            places.acquire()
        try:
            with self._lock:
                future = self._submit(what, task)
                self._pending.add(future)
        except BaseException:
            if places is not None:
                places.release()
            raise
        future.add_done_callback(lambda done: self._finished(done, places))
        return future

    def _submit(self, what: str, task: Callable[[], T]) -> Future[T]:
        if self._executor is not None:
            return self._executor.submit(self._run, what, task)
        executor = ThreadPoolExecutor(1, thread_name_prefix="slime_store-writer")
        try:
            future = executor.submit(self._run, what, task)
        except BaseException:  # no thread can be started, but the task is queued: it must never run after all
            executor.shutdown(wait=False, cancel_futures=True)
            raise
        self._executor = executor
        return future

    def raise_failure(self) -> None:
        """Raise the oldest failure that was not raised yet.

        Raises:
            BackgroundRecordError: a task failed.
        """
        with self._lock:
            failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure

    def flush(self) -> None:
        """Wait until every task submitted so far has ended, then do as ``raise_failure``."""
        with self._lock:
            pending = list(self._pending)
        wait(pending)
        self.raise_failure()

    def close(self) -> None:
        """Finish all tasks, end the thread, then raise all failures that were not raised yet, as one."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=not self._is_writer())  # a thread cannot wait for itself
        with self._lock:
            failures, self._failures = self._failures, []
        if len(failures) > 1:
            what, reason = ("; ".join(parts) for parts in zip(*[failure.args for failure in failures], strict=True))
            raise BackgroundRecordError(what, reason) from failures[0].__cause__
        if failures:
            raise failures[0]

    def _run(self, what: str, task: Callable[[], T]) -> T:
        """Do a task; its failure is noted before its future is done, so that whoever waits for that finds it."""
        self._local.is_writer = True
        try:
            return task()
        except BaseException as error:
            failure = BackgroundRecordError(what, f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            with self._lock:
                self._failures.append(failure)
            _log.error("recording %s in the background failed: %s", what, error)
            raise

    def _finished(self, future: Future[Any], places: threading.BoundedSemaphore | None) -> None:
        with self._lock:  # done, or cancelled by the caller, which is no failure
            self._pending.discard(future)
        if places is not None:
            places.release()

    def _is_writer(self) -> bool:
        return getattr(self._local, "is_writer", False)

    def after_fork(self) -> None:
        """Start afresh; also in a forked child, whose parent's thread and tasks are the parent's."""
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(MAX_PENDING)
        self._local = threading.local()
        self._executor = None
        self._pending = set()
        self._failures = []
