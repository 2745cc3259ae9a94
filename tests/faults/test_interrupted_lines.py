"""An interrupt at each line, in turn, of the code that takes locks: no other thread is held up, and nothing is lost."""

from __future__ import annotations

import gc
import linecache
import sys
import threading
import time
from collections.abc import Callable
from inspect import CO_GENERATOR
from types import FrameType
from typing import Any

import pytest

from slime_store import Run, Sample
from slime_store.testing.contract.opening import opened
from tests.services.threads import PATIENCE_SECONDS, in_time

# what hands work and connections from thread to thread; with `threading` the waits of the standard library
_TRACED = (
    *("/slime_store/store/" + name for name in ("worker", "exiting", "operations", "background", "journal")),
    "/slime_store/database/",
    *("/sqlalchemy/pool/", "/sqlalchemy/util/queue"),
    *("/threading.py", "/queue.py", "/concurrent/futures/", "/contextlib.py"),
)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def _is_traced(file: str) -> bool:
    # entering and leaving the function that closes what was interrupted is a moment of its own, see its docstring
    return any(part in file for part in _TRACED) and not file.endswith("/slime_store/database/interrupts.py")


class Interrupted(BaseException):
    """As little an ``Exception`` as ``KeyboardInterrupt``."""


def interrupted(work: Callable[[], Any], line: int) -> BaseException | None:
    """Work, and be interrupted at a line of the traced files, or at the return from one of their functions.

    The exception keeps alive what is in its traceback, as an interactive session does.
    """
    left = line
    begun: dict[tuple[FrameType, int], int] = {}

    def is_end_of_with(frame: FrameType) -> bool:
        """Tell whether a block of ``with`` ends here: Python runs no signal handler between its body and its exit."""
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        return frame.f_lasti > begun.setdefault((frame, frame.f_lineno), frame.f_lasti) and "with " in text

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left
        if event == "call":
            return trace if _is_traced(frame.f_code.co_filename) else None
        if (event == "line" and is_end_of_with(frame)) or (event == "return" and frame.f_code.co_flags & CO_GENERATOR):
            return trace  # nor can a handler run where a generator yields
        left -= 1
        if left <= 0:
            sys.settrace(None)
            raise Interrupted
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except BaseException as error:
        assert left <= 0, error
        return error  # be it another one: the standard library's own locks are left in disorder
    finally:
        sys.settrace(before)
    return None


def _is_ours(thread: threading.Thread) -> bool:
    # one whose `start` was interrupted may wait for ever for the standard library's own lock, before any line of ours
    return thread.name.startswith("slime_store-") and thread._started.is_set()  # type: ignore[attr-defined]


def _put_then_flush(run: Run, journal: Any, number: int) -> None:
    journal.put(number, [Sample(group_index=number)])
    journal.flush()


def _put_then_close(run: Run, journal: Any, number: int) -> None:
    journal.put(number, [Sample(group_index=number)])
    journal.close()


def _record(run: Run, journal: Any, number: int) -> None:
    run.record_train(number, [[Sample()]])


def _record_in_background(run: Run, journal: Any, number: int) -> None:
    future = run.record_train(number, [[Sample()]], background=True)
    future.result(PATIENCE_SECONDS)
    run.flush()


@pytest.mark.parametrize("every", [pytest.param(23, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("work", [_put_then_flush, _put_then_close, _record, _record_in_background])
def test_an_interrupt_at_a_line_holds_no_thread_up(store_url: str, work: Callable[..., None], every: int) -> None:
    with opened(store_url, busy_timeout=5) as store:
        run = store.run("run")
        journal = run.recovery.journal()
        work(run, journal, 0)
        kept: set[int] = {0}
        for tried in range(1, 10_000):
            error = interrupted(lambda number=2 * tried: work(run, journal, number), tried * every)
            in_time(lambda number=2 * tried + 1: work(run, journal, number))
            kept |= {2 * tried + 1} if error is not None else {2 * tried, 2 * tried + 1}
            if error is None:
                break
        assert tried > 2
        print(f"{tried - 1} interrupts, no thread held up")
        in_time(store.flush)
        in_time(journal.close)
        recorded = {info.rollout_id for info in run.rollouts()}
        recorded |= {samples[0].group_index for samples in run.resume().journalled_groups}
        assert kept <= recorded
        in_time(store.close)
    del error
    gc.collect()  # here, where what connections say when nobody has closed them is let pass
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(_is_ours(thread) for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "a thread was left"
        time.sleep(0.001)
