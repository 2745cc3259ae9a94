"""Recording behind the caller's back, without losing a failure."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from slime_store.database import tell_after_fork
from slime_store.errors import BackgroundRecordError, CommitUnknownError
from slime_store.store.worker import Worker

T = TypeVar("T")

MAX_PENDING = 4
"""Rollouts that may wait to be written; one more, and the caller waits. Each holds its encoded arrays in memory."""

_log = logging.getLogger("slime_store")


class _Condition(threading.Condition):
    """Is entered without a line of Python: Ctrl-C in ``result()`` does not leave it taken, and the writer waiting."""

    __enter__ = property(lambda self: self._lock.__enter__)
    __exit__ = property(lambda self: self._lock.__exit__)


class _RecordFuture(Future[T]):
    def __init__(self) -> None:
        super().__init__()
        self._condition = _Condition()


@dataclass(eq=False)
class _Task(Generic[T]):
    what: str
    work: Callable[[], T]
    future: Future[T] = field(default_factory=_RecordFuture)


def _tell(tell: Callable[[Any], None], outcome: Any) -> None:
    """Set a future's outcome. What its callbacks raise must not end the thread; a future catches `Exception` only."""
    try:
        tell(outcome)
    except BaseException:
        _log.exception("a callback of a record in the background failed")


class BackgroundWriter:
    """One writing thread, started on first use, that works in the order of submission.

    A failure is on the task's future, is logged, and is raised once by whichever comes first of ``raise_failure``,
    ``flush`` and ``close``.
    """

    _failures: deque[BackgroundRecordError]

    def __init__(self) -> None:
        self._worker = Worker("slime_store-writer", self._do, room=MAX_PENDING)
        self.after_fork()
        tell_after_fork(self)

    def submit(self, what: str, work: Callable[[], T]) -> Future[T]:
        """Queue a task; blocks while ``MAX_PENDING`` tasks are waiting or under way.

        A task that is submitted by another one's callback, on the writing thread itself, never waits: it would wait for
        itself.

        Raises:
            RuntimeError: no thread can be started; the task is never done.
        """
        task = _Task(what, work)
        self._worker.put(task)
        return task.future

    def raise_failure(self) -> None:
        """Raise the oldest failure that was not raised yet.

        Raises:
            BackgroundRecordError: a task failed.
        """
        for failure in self._taken(1):
            raise failure

    def wait(self) -> None:
        """Wait until every task submitted so far has ended."""
        self._worker.flush()

    def flush(self) -> None:
        """Wait until every task submitted so far has ended, then do as ``raise_failure``."""
        self.wait()
        self.raise_failure()

    def close(self) -> None:
        """Finish all tasks, end the thread, then raise all failures that were not raised yet, as one."""
        self._worker.close()
        failures = self._taken(None)
        if len(failures) > 1:
            what, reason = "; ".join(each.what for each in failures), "; ".join(each.reason for each in failures)
            may_be_stored = any(each.may_be_stored for each in failures)
            raise BackgroundRecordError(what, reason, may_be_stored) from failures[0].__cause__
        if failures:
            raise failures[0]

    def _do(self, tasks: list[_Task[Any]]) -> bool:
        for task in tasks:
            if task.future.set_running_or_notify_cancel():
                try:
                    result = task.work()
                except BaseException as error:
                    self._note(task.what, error)  # before the future is done: whoever waits for that finds it
                    _tell(task.future.set_exception, error)
                else:
                    _tell(task.future.set_result, result)
        return True

    def _taken(self, most: int | None) -> list[BackgroundRecordError]:
        failures: list[BackgroundRecordError] = []
        with contextlib.suppress(IndexError):
            while most is None or len(failures) < most:
                failures.append(self._failures.popleft())
        return failures

    def _note(self, what: str, error: BaseException) -> None:
        may_be_stored = isinstance(error, CommitUnknownError)
        failure = BackgroundRecordError(what, f"{type(error).__name__}: {error}", may_be_stored)
        failure.__cause__ = error
        self._failures.append(failure)
        _log.error("recording %s in the background failed: %s", what, error)

    def after_fork(self) -> None:
        """Start afresh in a forked child: the failures are the parent's."""
        self._failures = deque()
