# ruff: noqa: D102  (a test's name is its docstring)
"""The contract on identity: runs, attempts, deletion."""

from __future__ import annotations

import pytest

from slime_store.errors import RolloutExistsError, RolloutNotFoundError, RunNotFoundError
from slime_store.testing.compare import assert_same
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened, run_of
from slime_store.testing.factories import make_eval_output, make_sample, make_train_output
from slime_store.types import Sample


class AttemptContract:
    """A rollout id may be recorded again; the newest attempt answers, and no two are mixed."""

    def test_a_rollout_recorded_again_is_a_new_attempt_and_the_newest_is_loaded(self, store_url: str) -> None:
        old, new = make_train_output(seed=1), make_train_output(seed=2, n_groups=1)
        with run_of(store_url) as run:
            first, second = run.record_train(12, old), run.record_train(12, new)
            assert (first.attempt, second.attempt) == (1, 2)
        assert_same(loaded_train(store_url, 12), new)
        assert_same(loaded_train(store_url, 12, attempt=1), old)
        assert_same(loaded_train(store_url, 12, attempt=2), new)

    def test_replace_leaves_only_the_new_recording(self, store_url: str) -> None:
        new = make_train_output(seed=2)
        with run_of(store_url) as run:
            run.record_train(12, make_train_output(seed=1))
            run.record_train(12, new, on_conflict="replace")
            assert len(run.rollouts("train", attempts=True)) == 1
            assert len(list(run.iter_samples())) == 8
        assert_same(loaded_train(store_url, 12), new)

    def test_error_refuses_and_keeps_the_old_recording(self, store_url: str) -> None:
        old = make_train_output(seed=1)
        with run_of(store_url) as run:
            run.record_train(12, old, on_conflict="error")
            with pytest.raises(RolloutExistsError):
                run.record_train(12, make_train_output(seed=2), on_conflict="error")
            assert len(run.rollouts("train", attempts=True)) == 1
        assert_same(loaded_train(store_url, 12), old)

    def test_train_and_eval_of_one_id_do_not_meet(self, store_url: str) -> None:
        train, evaluation = make_train_output(), make_eval_output()
        with run_of(store_url) as run:
            assert run.record_train(5, train).attempt == 1
            assert run.record_eval(5, evaluation, on_conflict="error").attempt == 1
        assert_same(loaded_train(store_url, 5), train)
        assert_same(loaded_eval(store_url, 5), evaluation)

    def test_two_runs_do_not_meet(self, store_url: str) -> None:
        outputs = {name: make_train_output(seed=seed) for seed, name in enumerate(["a", "b", "a/b", "ä"])}
        for name, output in outputs.items():
            with run_of(store_url, name) as run:
                run.record_train(0, output)
        with opened(store_url) as store:
            assert [info.name for info in store.runs()] == list(outputs)
        for name, output in outputs.items():
            assert_same(loaded_train(store_url, 0, name), output)

    def test_listing_shows_the_newest_attempt_unless_all_are_asked_for(self, store_url: str) -> None:
        with run_of(store_url) as run:
            for rollout_id in (0, 1, 0):
                run.record_train(rollout_id, make_train_output(), on_conflict="new_attempt")
            run.record_eval(0, make_eval_output())

            def listed(attempts: bool) -> set[tuple[str, int, int]]:
                return {(info.kind, info.rollout_id, info.attempt) for info in run.rollouts(attempts=attempts)}

            newest = {("train", 0, 2), ("train", 1, 1), ("eval", 0, 1)}
            assert listed(False) == newest
            assert listed(True) == newest | {("train", 0, 1)}
            assert {info.kind for info in run.rollouts("eval")} == {"eval"}

    def test_what_record_returns_is_what_the_listing_says(self, store_url: str) -> None:
        output = make_train_output(3, 2, n_tokens=10, n_prompt_tokens=5)
        with run_of(store_url) as run:
            info = run.record_train(7, output)
            assert_same(run.rollouts("train")[0], info)
        assert (info.run, info.kind, info.rollout_id, info.attempt) == ("contract", "train", 7, 1)
        assert (info.status, info.session) == ("complete", 1)
        assert (info.n_groups, info.n_samples, info.n_tokens, info.n_trajectories) == (3, 6, 6 * 15, 6)
        assert_same(info.metrics, output.metrics)
        assert info.n_bytes > 0
        assert info.placeholders == ()
        assert info.finished_at is not None
        assert info.started_at <= info.finished_at
        assert str(info.finished_at.utcoffset()) == "0:00:00"

    def test_segments_of_one_execution_count_as_one_trajectory(self, store_url: str) -> None:
        split = [make_sample(0, rollout_id=9), make_sample(0, rollout_id=9), make_sample(0, rollout_id=9)]
        with run_of(store_url) as run:
            info = run.record_train(0, [[split, [make_sample(1)]]])
        assert (info.n_samples, info.n_trajectories) == (4, 2)

    def test_the_samples_own_rollout_id_is_not_the_steps(self, store_url: str) -> None:
        ids = [None, 3000, 3000, 3001]
        with run_of(store_url) as run:
            run.record_train(12, [[Sample(rollout_id=each) for each in ids]])
        assert [sample.rollout_id for sample in loaded_train(store_url, 12).samples[0]] == ids

    def test_a_writer_that_comes_back_is_a_new_session(self, store_url: str) -> None:
        sessions = []
        for rollout_id in range(2):
            with run_of(store_url) as run:
                sessions.append(run.record_train(rollout_id, make_train_output(1, 1)).session)
        assert sessions == [1, 2]

    def test_a_deleted_rollout_leaves_nothing(self, store_url: str) -> None:
        kept, doomed = make_train_output(seed=1), make_train_output(seed=2)
        with run_of(store_url) as run:
            run.record_train(0, kept)
        with opened(store_url) as store:
            before = store.stats()
            run = store.run("contract")
            run.record_train(1, doomed)
            run.record_train(1, doomed)
            run.delete_rollout(1)
            with pytest.raises(RolloutNotFoundError):
                run.load_train(1)
            after = store.stats()
            for count in ("n_rollouts", "n_samples", "n_tokens", "n_prompts", "n_blobs", "blob_bytes"):
                assert getattr(after, count) == getattr(before, count), count
        assert_same(loaded_train(store_url, 0), kept)

    def test_what_is_not_there_is_a_typed_error(self, store_url: str) -> None:
        with opened(store_url) as store:
            with pytest.raises(RunNotFoundError):
                store.run("nobody", create=False)
            run = store.run("contract")
            run.record_train(1, make_train_output(1, 1))
            for load in (
                lambda: run.load_train(2),
                lambda: run.load_eval(1),
                lambda: run.load_train(1, attempt=2),
            ):
                with pytest.raises(RolloutNotFoundError):
                    load()
