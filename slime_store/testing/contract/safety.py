# ruff: noqa: D102  (a test's name is its docstring)
"""The contract on safety: snapshots, refusals, read-only stores, stores that are not there."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from slime_store.errors import StoreError, StoreNotFoundError, UnsupportedValueError
from slime_store.testing.compare import assert_same
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened, run_of
from slime_store.testing.factories import make_eval_output, make_sample, make_train_output
from slime_store.types import Placeholder, Sample


def _poisoned() -> list[list[Sample]]:
    groups = make_train_output(3, 2).samples
    groups[2][1].metadata["fh"] = threading.Lock()
    return groups


class SafetyContract:
    """Nothing is written by halves, changed silently, or changed by who only reads."""

    def test_a_background_record_stores_the_samples_as_they_were_at_the_call(self, store_url: str) -> None:
        groups, expected = make_train_output().samples, make_train_output().samples
        with run_of(store_url) as run:
            future = run.record_train(0, groups, background=True)
            for sample in (sample for group in groups for sample in group):
                sample.loss_mask = [0] * sample.response_length
                sample.tokens.append(1)
                sample.weight_versions.clear()
                sample.metadata.pop("source")
                sample.prompt[0]["content"] = "changed"  # type: ignore[index]
            assert isinstance(future, Future)
            assert future.result(timeout=60).n_samples == 8
        assert_same(loaded_train(store_url, 0).samples, expected)

    def test_closing_waits_for_what_is_recorded_in_the_background(self, store_url: str) -> None:
        outputs = [make_train_output(seed=seed) for seed in range(3)]
        with run_of(store_url) as run:
            for rollout_id, output in enumerate(outputs):
                run.record_train(rollout_id, output, background=True)
            run.record_eval(0, make_eval_output(), background=True)
        for rollout_id, output in enumerate(outputs):
            assert_same(loaded_train(store_url, rollout_id), output)
        assert_same(loaded_eval(store_url, 0), make_eval_output())

    def test_strict_names_the_value_it_cannot_keep_and_writes_nothing(self, store_url: str) -> None:
        with run_of(store_url) as run:
            with pytest.raises(UnsupportedValueError, match=r"group 2, sample 1, metadata\['fh'\]"):
                run.record_train(0, _poisoned())
            assert run.rollouts(attempts=True) == []
            run.record_train(0, make_train_output())  # and the store goes on
        assert_same(loaded_train(store_url, 0), make_train_output())

    def test_lenient_marks_the_value_it_cannot_keep_and_keeps_the_rest(self, store_url: str) -> None:
        with run_of(store_url) as run:
            info = run.record_train(0, _poisoned(), strict=False)
        assert info.placeholders == ("group 2, sample 1, metadata['fh']",)
        loaded = loaded_train(store_url, 0).samples
        mark = loaded[2][1].metadata.pop("fh")
        assert isinstance(mark, Placeholder)
        assert mark.type_name.endswith("lock")
        assert "lock" in mark.text
        assert_same(loaded, make_train_output(3, 2).samples)

    def test_a_value_that_contains_itself_is_refused(self, store_url: str) -> None:
        cycle: dict[str, Any] = {}
        cycle["self"] = [cycle]
        with run_of(store_url) as run:
            with pytest.raises(UnsupportedValueError):
                run.record_train(0, [[Sample(metadata=cycle)]])
            assert run.rollouts() == []

    def test_what_is_no_sample_is_refused(self, store_url: str) -> None:
        nonsense: list[Any] = [[[None]], [["text"]], [make_sample(0), {"tokens": []}], "samples", None, 3]
        with run_of(store_url) as run:
            for output in nonsense:
                with pytest.raises((StoreError, TypeError, ValueError)):
                    run.record_train(0, output)
            assert run.rollouts() == []

    def test_a_failure_in_the_background_is_on_the_future_and_is_raised_later(self, store_url: str) -> None:
        with opened(store_url) as store:
            run = store.run("contract")
            futures = []

            def record_and_flush() -> None:
                futures.append(run.record_train(0, _poisoned(), background=True))
                store.flush()

            with pytest.raises(StoreError):  # in the call, if it is found out while the snapshot is taken
                record_and_flush()
            assert all(isinstance(future.exception(timeout=60), StoreError) for future in futures)
            assert run.rollouts() == []

    def test_a_read_only_store_reads_and_refuses_to_write(self, store_url: str) -> None:
        output = make_train_output()
        with run_of(store_url) as run:
            run.record_train(0, output)
        with opened(store_url, read_only=True) as store:
            run = store.run("contract", create=False)
            assert_same(run.load_train(0), output)
            for write in (
                lambda: run.record_train(1, output),
                lambda: run.delete_rollout(0),
                lambda: store.run("another"),
            ):
                with pytest.raises(StoreError):
                    write()
            assert [info.name for info in store.runs()] == ["contract"]
        assert_same(loaded_train(store_url, 0), output)

    def test_a_read_only_store_is_not_made(self, store_url: str) -> None:
        from slime_store import SampleStore

        for _ in range(2):  # the first try must not leave anything that the second would open
            with pytest.raises(StoreNotFoundError):
                SampleStore.open(store_url, read_only=True)

    def test_a_pickled_store_and_run_go_on_working(self, store_url: str) -> None:
        output = make_train_output()
        with opened(store_url) as store:
            run = store.run("contract")
            run.record_train(0, output)
            again = pickle.loads(pickle.dumps(run))
            assert_same(again.load_train(0), output)
            copied = pickle.loads(pickle.dumps(store))
            try:
                assert [info.name for info in copied.runs()] == ["contract"]
            finally:
                copied.close()

    def test_threads_may_share_a_store(self, store_url: str) -> None:
        outputs = {rollout_id: make_train_output(seed=rollout_id) for rollout_id in range(8)}
        with run_of(store_url) as run:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(lambda item: run.record_train(*item), outputs.items()))
                loaded = dict(zip(outputs, pool.map(run.load_train, outputs), strict=True))
            assert_same(loaded, outputs)
