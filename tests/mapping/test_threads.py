"""The work of several threads: each item once, whatever becomes of the threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from slime_store.mapping.threads import map_in_threads


class Work:
    """Counts how often each item is worked on, and by how many threads."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()
        self.threads: set[int] = set()

    def __call__(self, item: int) -> int:
        self.times[item] += 1
        self.threads.add(threading.get_ident())
        time.sleep(0.001)
        return item * item


@pytest.mark.parametrize("n_started", [0, 1, 3])
def test_each_item_is_worked_on_once_though_threads_cannot_be_started(
    n_started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, places = threading.Thread.start, iter(range(n_started))

    def start_a_few(thread: threading.Thread) -> None:
        if next(places, None) is None:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_a_few)
    work = Work()
    assert map_in_threads(work, list(range(100)), 4) == [item * item for item in range(100)]
    assert set(work.times.values()) == {1} and len(work.times) == 100
    assert len(work.threads) == n_started + 1


@pytest.mark.parametrize("n_items", [0, 1, 2])
def test_few_items_need_few_threads(n_items: int) -> None:
    assert map_in_threads(Work(), list(range(n_items)), 4) == [item * item for item in range(n_items)]


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@pytest.mark.usefixtures("no_thread_is_left")
@pytest.mark.parametrize("error", [IndexError, OSError, RuntimeError])
def test_an_error_is_raised_as_it_is_and_ends_the_work(error: type[Exception]) -> None:
    seen: list[int] = []

    def work(item: int) -> int:
        seen.append(item)
        time.sleep(0.001)
        if item == 3:
            raise error("item 3")
        return item

    with pytest.raises(error, match="item 3"):
        map_in_threads(work, list(range(1000)), 4)
    assert len(seen) < 100
