"""Ctrl-C, or what a signal handler raises, at any moment of a call: the store goes on, and what returned is there."""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from slime_store import RolloutFnTrainOutput, Sample, SampleStore
from slime_store.database import forks
from slime_store.store import collection
from slime_store.testing import assert_same
from tests.services.filling import rich_train

N_TRIES = 40

# between the opening of a file and the line that will close it, nobody but the garbage collector can
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Interrupted(BaseException):
    """What the handler raises; as little an ``Exception`` as ``KeyboardInterrupt``."""


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def interrupted(work: Callable[[], Any], seconds: float) -> BaseException | None:
    """Work, and be interrupted after some seconds; return the exception, with all that its traceback keeps alive."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        work()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted as error:
        return error
    return None


def _usual_seconds(work: Callable[[], Any]) -> float:
    taken = []
    for _ in range(4):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


@pytest.mark.parametrize("address", ["file", "memory"])
def test_an_interrupted_record_leaves_no_lock_and_takes_nothing_along(sqlite_url: str, address: str) -> None:
    output = RolloutFnTrainOutput(rich_train(0).samples)
    with SampleStore.open(sqlite_url if address == "file" else ":memory:", busy_timeout=2) as store:
        run = store.run("run")
        usual = _usual_seconds(lambda: run.record_train(0, output))
        kept, n_interrupted = [], 0
        for i in range(1, N_TRIES):
            kept.append(interrupted(partial(run.record_train, i, output), usual * (i % 20) / 20 + 1e-4))
            n_interrupted += kept[-1] is not None
            run.record_train(1000 + i, output)
            assert_same(run.load_train(1000 + i).samples, output.samples)
        assert n_interrupted > N_TRIES // 4
        assert {info.rollout_id for info in run.rollouts()} >= {0, *range(1001, 1000 + N_TRIES)}
        for info in run.rollouts():
            assert_same(run.load_train(info.rollout_id).samples, output.samples)
        assert {problem.code for problem in store.verify(grace_seconds=0).problems} <= {"file_unused", "file_temporary"}


@pytest.mark.parametrize("address", ["file", "memory"])
def test_an_interrupted_load_leaves_the_store_as_it_was(sqlite_url: str, address: str) -> None:
    output = RolloutFnTrainOutput(rich_train(0).samples)
    with SampleStore.open(sqlite_url if address == "file" else ":memory:", busy_timeout=2) as store:
        run = store.run("run")
        run.record_train(0, output)
        usual = _usual_seconds(lambda: run.load_train(0))
        kept = [interrupted(lambda: run.load_train(0), usual * (i % 20) / 20 + 1e-4) for i in range(N_TRIES)]
        assert sum(error is not None for error in kept) > N_TRIES // 4
        assert_same(run.load_train(0).samples, output.samples)
        run.record_train(1, output)


def test_interrupts_leave_the_collector_on_and_forks_unhindered(sqlite_url: str) -> None:
    """A few hundred at any line of the code around a small record."""
    with SampleStore.open(sqlite_url) as store:
        run = store.run("run")
        usual = _usual_seconds(lambda: run.record_train(0, [[Sample()]]))
        for i in range(1, 300):
            interrupted(partial(run.record_train, i, [[Sample()]]), usual * (i % 50) / 50 + 1e-5)
        gc.collect()
        assert gc.isenabled()
        assert not collection._pauses
        assert not forks._gate.active
