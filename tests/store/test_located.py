"""Samples with the place where each was recorded; one sample alone; counting."""

from __future__ import annotations

import pytest

from slime_store import Sample, SampleFilter
from slime_store.errors import RolloutNotFoundError, SampleNotFoundError
from slime_store.store.located import count_samples, iter_located, load_sample
from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import opened, run_of
from slime_store.types import SamplePlace, iter_leaf_samples


def test_samples_come_with_their_places_run_after_run(store_url: str) -> None:
    with run_of(store_url, "first") as run:
        run.record_train(3, make_train_output(1, 2))
        run.record_train(3, make_train_output(1, 3))
        run.record_eval(3, make_eval_output({"aime": 1, "gsm8k": 1}))
    with run_of(store_url, "second") as run:
        run.record_train(0, make_train_output(1, 1))
    with opened(store_url, read_only=True) as store:
        places = [each.place for each in iter_located(store, fields=["reward"], batch_size=2)]
        assert places == [
            *[SamplePlace("first", "train", 3, 2, 1, None, i) for i in range(3)],
            *[SamplePlace("first", "eval", 3, 1, 1, name, i) for i, name in enumerate(["aime"] * 2 + ["gsm8k"] * 2)],
            SamplePlace("second", "train", 0, 1, 1, None, 0),
        ]
        run = store.run("first", create=False)
        some = list(iter_located(run, SampleFilter(dataset="gsm8k"), sample_type=Sample))
        assert [each.place.position for each in some] == [2, 3]
        first = list(run.iter_samples(SampleFilter(attempt=1), sample_type=Sample))
        located = [each.sample for each in iter_located(run, SampleFilter(attempt=1), sample_type=Sample)]
        assert_same(located, first)


def test_attributes_can_be_left_out(store_url: str) -> None:
    sample = make_sample(0, group_index=0, tool_calls=3)
    with run_of(store_url) as run:
        run.record_train(0, [[sample]])
        (found,) = iter_located(run, without=["tokens", "response"], sample_type=Sample)
    assert found.sample.tokens == [] and found.sample.response == ""
    assert found.sample.tool_calls == 3 and found.sample.loss_mask == sample.loss_mask


def test_one_sample_is_loaded_alone(store_url: str) -> None:
    output, evaluation = make_train_output(2, 3), make_eval_output({"aime": 1, "gsm8k": 1})
    with run_of(store_url) as run:
        run.record_train(3, output)
        run.record_train(3, make_train_output(1, 1, seed=5))
        run.record_eval(3, evaluation)
        found = load_sample(run, 3, 4, attempt=1, sample_type=Sample)
        assert_same(found.sample, list(iter_leaf_samples(output.samples))[4])
        assert found.place == SamplePlace("contract", "train", 3, 1, 1, None, 4)
        found = load_sample(run, 3, 2, kind="eval", sample_type=Sample)
        assert_same(found.sample, evaluation.data["gsm8k"]["samples"][0])
        assert found.place.dataset == "gsm8k"
        with pytest.raises(SampleNotFoundError, match="of run 'contract' has no sample 1; they are 0 to 0"):
            load_sample(run, 3, 1)
        with pytest.raises(RolloutNotFoundError):
            load_sample(run, 4, 0)


def test_samples_are_counted_as_they_are_found(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(1, make_train_output(3, 4))
        run.record_train(1, make_train_output(2, 4))
        run.record_eval(1, make_eval_output())
        for where in (
            None,
            SampleFilter(kind="train"),
            SampleFilter(kind="train", attempt=1),
            SampleFilter(reward_min=1.0),
            SampleFilter(text="sum"),
            SampleFilter(metadata={"difficulty": (1, 2)}, kind="eval"),
            SampleFilter(prompt=[{"role": "user", "content": "nobody asked"}]),
            SampleFilter(rollout_ids=[]),
        ):
            assert count_samples(run, where) == sum(1 for _ in run.iter_samples(where, fields=[])), where


def test_runs_and_sessions_and_single_rollouts_are_told(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(1, make_train_output(1, 1))
    with opened(store_url) as store:
        again = store.run("contract", config={"lr": 1})
        again.record_train(1, make_train_output(1, 2))
        assert again.info().n_rollouts == 1 and again.info().config == {"lr": 1}
        first, second = again.sessions()
        assert (first.session, first.n_rollouts, first.config) == (1, 1, None)
        assert (second.session, second.n_rollouts, second.config) == (2, 1, {"lr": 1})
        assert again.rollout(1).n_samples == 2 and again.rollout(1, attempt=1).n_samples == 1
        with pytest.raises(RolloutNotFoundError):
            again.rollout(1, kind="eval")


@pytest.mark.parametrize("position", [-1, 2, 2**63, 2**70])
def test_a_position_that_no_rollout_can_have_is_not_there(store_url: str, position: int) -> None:
    with run_of(store_url) as run:
        run.record_train(0, make_train_output(1, 2))
        with pytest.raises(SampleNotFoundError, match="they are 0 to 1"):
            load_sample(run, 0, position)
