"""Work that releases the GIL (compressors, copies of arrays), on a few threads."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_THREADS = min(4, os.cpu_count() or 1)
_WORTH_THREADS = 256 * 1024


def threads_for(raw_bytes: int) -> int:
    """Return on how many threads so many bytes are compressed or decompressed: 1 where handing over costs more."""
    return _THREADS if raw_bytes >= _WORTH_THREADS else 1


def map_in_threads(work: Callable[[T], R], items: Sequence[T], threads: int) -> list[R]:
    """Work on each item exactly once, in this thread and up to ``threads - 1`` more; results in the items' order.

    Threads of its own, not an executor: one that cannot start a thread raises, yet keeps the item in its queue.
    An exception ends the work, and is raised here.
    """
    todo = deque(enumerate(items))
    results: dict[int, R] = {}
    errors: list[BaseException] = []

    def work_off() -> None:
        while True:
            try:
                position, item = todo.popleft()
            except IndexError:
                return
            try:
                results[position] = work(item)
            except BaseException as error:
                errors.append(error)
                todo.clear()

    helpers: list[threading.Thread] = []
    for _ in range(min(threads, len(items)) - 1):
        helper = threading.Thread(target=work_off, name="slime_store-payloads")
        try:
            helper.start()
        except RuntimeError:  # no more threads, or the interpreter is shutting down: those that run do it all
            break
        helpers.append(helper)
    work_off()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
    return [results[position] for position in range(len(items))]
