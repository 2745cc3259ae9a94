"""Recording in the background: nothing is lost, and no failure dies silently (DESIGN 3.2; the snapshot is case C7)."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from slime_store import SampleStore
from slime_store.blobs import PayloadWriter
from slime_store.errors import BackgroundRecordError, RolloutExistsError, StoreClosedError
from slime_store.store.background import MAX_PENDING
from slime_store.testing import assert_same, make_eval_output, make_train_output
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened, run_of


class Writer:
    """Stands between the store and its disk: holds writing up, and makes it fail."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.is_broken = False


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Writer:
    """The writer of every store of this test."""
    writer, keep = Writer(), PayloadWriter.keep

    def slow_keep(self: PayloadWriter, *args: Any) -> Any:
        assert writer.go.wait(60)
        if writer.is_broken:
            raise RuntimeError("the disk is gone")
        return keep(self, *args)

    monkeypatch.setattr(PayloadWriter, "keep", slow_keep)
    return writer


def failed(run: Any, writer: Writer, *rollout_ids: int) -> None:
    """Let records fail in the background, and wait for it."""
    writer.is_broken = True
    futures = []
    writer.go.clear()
    for rollout_id in rollout_ids:
        futures.append(run.record_train(rollout_id, make_train_output(1, 1), background=True))
    writer.go.set()
    for future in futures:
        with pytest.raises(RuntimeError, match="the disk is gone"):
            future.result(60)
    writer.is_broken = False


def test_the_future_gives_what_recording_returns(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run("contract")
        future = run.record_train(3, make_train_output(), background=True)
        evaluation = run.record_eval(3, make_eval_output(), background=True)
        store.flush()
        assert future.done()
        assert evaluation.done()
        assert_same(run.rollouts(), [future.result(), evaluation.result()])
    assert_same(loaded_train(store_url, 3), make_train_output())
    assert_same(loaded_eval(store_url, 3), make_eval_output())


def test_closing_finishes_what_waits(store_url: str, writer: Writer) -> None:
    writer.go.clear()
    with run_of(store_url) as run:
        for rollout_id in range(4):
            run.record_train(rollout_id, make_train_output(seed=rollout_id), background=True)
        assert run.rollouts() == []
        writer.go.set()
    for rollout_id in range(4):
        assert_same(loaded_train(store_url, rollout_id), make_train_output(seed=rollout_id))


def test_a_failure_is_raised_once_by_the_next_record(store_url: str, writer: Writer) -> None:
    with opened(store_url) as store:
        run = store.run("contract")
        failed(run, writer, 0)
        with pytest.raises(
            BackgroundRecordError, match=r"train rollout 0 of run 'contract'.*the disk is gone"
        ) as error:
            run.record_train(1, make_train_output())
        assert isinstance(error.value.__cause__, RuntimeError)
        assert run.rollouts() == []  # the record that met the failure was not begun
        run.record_train(1, make_train_output())
        store.flush()
    assert_same(loaded_train(store_url, 1), make_train_output())


@pytest.mark.parametrize("ask", ["store.flush", "run.flush", "store.close", "record_eval", "background"])
def test_a_failure_is_raised_once_by_whatever_asks_first(store_url: str, writer: Writer, ask: str) -> None:
    store = SampleStore.open(store_url)
    run = store.run("contract")
    asks: dict[str, Any] = {
        "store.flush": store.flush,
        "run.flush": run.flush,
        "store.close": store.close,
        "record_eval": lambda: run.record_eval(0, {}),
        "background": lambda: run.record_train(1, make_train_output(), background=True),
    }
    failed(run, writer, 0)
    with pytest.raises(BackgroundRecordError, match="train rollout 0"):
        asks[ask]()
    if ask != "store.close":
        store.flush()
        assert run.rollouts() == []
    store.close()
    with pytest.raises(StoreClosedError):
        run.rollouts()


def test_every_failure_is_raised(store_url: str, writer: Writer) -> None:
    store = SampleStore.open(store_url)
    run = store.run("contract")
    failed(run, writer, 0, 1, 2, 3)
    with pytest.raises(BackgroundRecordError, match="train rollout 0"):
        store.flush()
    with pytest.raises(BackgroundRecordError, match="train rollout 1"):
        run.record_train(9, make_train_output())
    with pytest.raises(BackgroundRecordError, match=r"train rollout 2.*train rollout 3"):
        store.close()
    store.close()


def test_flush_raises_a_failure_that_happens_while_it_waits(store_url: str, writer: Writer) -> None:
    with opened(store_url) as store:
        run = store.run("contract")
        writer.is_broken = True
        writer.go.clear()
        run.record_train(0, make_train_output(1, 1), background=True)
        threading.Timer(0.1, writer.go.set).start()
        with pytest.raises(BackgroundRecordError, match="train rollout 0"):
            store.flush()


def test_a_callback_may_record_flush_and_close_on_the_writing_thread(store_url: str) -> None:
    store, done = SampleStore.open(store_url), threading.Event()
    run = store.run("contract")

    def go_on(_future: Future[Any]) -> None:
        for rollout_id in range(1, 3 * MAX_PENDING):
            run.record_train(rollout_id, make_train_output(1, 1), background=True)
        store.flush()
        run.record_train(0, make_train_output(1, 1), on_conflict="replace", background=True).add_done_callback(close)

    def close(_future: Future[Any]) -> None:
        store.close()
        done.set()

    run.record_train(0, make_train_output(1, 1), background=True).add_done_callback(go_on)
    assert done.wait(60)
    store.close()
    with opened(store_url) as store:
        assert len(store.run("contract").rollouts()) == 3 * MAX_PENDING


def test_nothing_that_was_written_is_kept_in_memory_and_a_dropped_store_ends_its_thread(sqlite_url: str) -> None:
    store = SampleStore.open(sqlite_url)
    future = store.run("contract").record_train(0, make_train_output(1, 1), background=True)
    future.result(60)
    store.flush()
    dropped = weakref.ref(future)
    del future
    assert dropped() is None
    [thread] = [each for each in threading.enumerate() if each.name == "slime_store-writer"]
    del store
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_a_failure_is_logged_even_if_nobody_asks(
    store_url: str, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(store_url) as store, caplog.at_level(logging.ERROR, "slime_store"):
        failed(store.run("contract"), writer, 5)
        assert "train rollout 5 of run 'contract'" in caplog.text
        assert "the disk is gone" in caplog.text
        with pytest.raises(BackgroundRecordError):
            store.flush()


def test_one_failure_does_not_stop_the_records_after_it(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run("contract")
        run.record_train(0, make_train_output(seed=1))
        refused = run.record_train(0, make_train_output(), on_conflict="error", background=True)
        assert isinstance(refused.exception(60), RolloutExistsError)
        with pytest.raises(BackgroundRecordError):
            store.flush()
        future = run.record_train(1, make_train_output(), background=True)
        assert future.result(60).attempt == 1
    assert_same(loaded_train(store_url, 0), make_train_output(seed=1))


def test_a_record_that_its_caller_cancels_is_not_made_and_holds_nothing_up(store_url: str, writer: Writer) -> None:
    with opened(store_url) as store:
        run = store.run("contract")
        for round_ in range(3):
            writer.go.clear()
            first = run.record_train(round_, make_train_output(), background=True)
            waiting = [run.record_train(100 + i, make_train_output(), background=True) for i in range(3)]
            assert all(future.cancel() for future in waiting)
            writer.go.set()
            store.flush()
            assert first.result(60).rollout_id == round_
            for future in waiting:
                with pytest.raises(CancelledError):
                    future.result()
        assert [info.rollout_id for info in run.rollouts(attempts=True)] == [0, 1, 2]


def test_a_record_for_which_no_thread_can_be_started_is_never_made_and_holds_nothing_up(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with opened(store_url) as store:
        run = store.run("contract")
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", no_thread)
            for rollout_id in range(2 * MAX_PENDING):  # more than there are places
                with pytest.raises(RuntimeError, match="new thread"):
                    run.record_train(rollout_id, make_train_output(1, 1), background=True)
        futures = [run.record_train(100 + i, make_train_output(1, 1), background=True) for i in range(MAX_PENDING)]
        store.flush()
        assert [future.result(60).rollout_id for future in futures] == [100 + i for i in range(MAX_PENDING)]
        assert [info.rollout_id for info in run.rollouts()] == [100 + i for i in range(MAX_PENDING)]
