"""Work that releases the GIL (compressors, copies of arrays), on a few threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_THREADS = min(4, os.cpu_count() or 1)
_WORTH_THREADS = 256 * 1024


def threads_for(raw_bytes: int) -> int:
    """Return on how many threads so many bytes are compressed or decompressed: 1 where handing over costs more."""
    return _THREADS if raw_bytes >= _WORTH_THREADS else 1


def map_in_threads(work: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """Work on each item exactly once, in this thread and up to ``threads - 1`` more; results in the items' order.

    An exception ends the work, and is raised here.
    """
    return Begun(work, items, threads).results()


class Begun(Generic[T, R]):
    """Work on items that other threads have begun, while this one does something else; ``results`` helps and waits.

    Threads of its own, not an executor: one that cannot start a thread raises, yet keeps the item in its queue.

    Args:
        work: called once with each item.
        items: any number.
        threads: how many work in the end, the one that asks for the results included.
    """

    def __init__(self, work: Callable[[T], R], items: Sequence[T], threads: int) -> None:
        self._work = work
        self._n_items = len(items)
        self._todo = deque(enumerate(items))
        self._results: dict[int, R] = {}
        self._errors: list[BaseException] = []
        self._helpers: list[threading.Thread] = []
        for _ in range(min(threads, len(items)) - 1):
            helper = threading.Thread(target=self._work_off, name="slime_store-payloads")
            try:
                helper.start()
            except RuntimeError:  # no more threads, or the interpreter is shutting down: those that run do it all
                break
            self._helpers.append(helper)

    def results(self) -> list[R]:
        """Return the results in the items' order, or raise the exception that ended the work."""
        self._work_off()
        for helper in self._helpers:
            helper.join()
        if self._errors:
            raise self._errors[0]
        return [self._results[position] for position in range(self._n_items)]

    def _work_off(self) -> None:
        while True:
            try:
                position, item = self._todo.popleft()
            except IndexError:
                return
            try:
                self._results[position] = self._work(item)
            except BaseException as error:
                self._errors.append(error)
                self._todo.clear()
