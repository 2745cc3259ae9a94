"""Factories make the shapes that slime makes, and the same ones for the same seed."""

from __future__ import annotations

import struct
import subprocess
import sys

from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output, same
from slime_store.types import Sample


def test_a_sample_is_consistent_in_its_lengths() -> None:
    sample = make_sample(3, group_index=1, n_prompt_tokens=5, n_tokens=40, n_turns=3, weight_version="7")
    assert len(sample.tokens) == 45
    assert sample.response_length == len(sample.loss_mask or []) == len(sample.rollout_log_probs or []) == 40
    assert sample.weight_versions == ["7", "7", "7"]
    assert sample.status is Sample.Status.COMPLETED
    assert sample.reward in (0.0, 1.0)
    assert 0 < sample.effective_response_length < 40


def test_lengths_agree_for_every_number_of_tokens_and_turns() -> None:
    for n_tokens in (0, 1, 7, 8, 9, 31):
        for n_turns in (1, 2, 5):
            sample = make_sample(n_tokens=n_tokens, n_turns=n_turns)
            assert len(sample.loss_mask or []) == len(sample.rollout_log_probs or []) == n_tokens


def test_log_probs_are_python_floats_that_float32_holds_exactly_and_zero_where_masked() -> None:
    sample = make_sample(n_tokens=200, n_turns=3)
    assert sample.rollout_log_probs is not None
    assert sample.loss_mask is not None
    for value, kept in zip(sample.rollout_log_probs, sample.loss_mask, strict=True):
        assert type(value) is float
        assert struct.unpack("<f", struct.pack("<f", value))[0] == value <= 0
        assert kept or value == 0.0


def test_the_same_seed_makes_the_same_values_in_every_process() -> None:
    code = "from slime_store.testing import *; print(make_train_output(seed=5), make_eval_output(seed=5))"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)]
    assert runs[0] == runs[1] == f"{make_train_output(seed=5)} {make_eval_output(seed=5)}\n".encode()
    assert not same(make_train_output(seed=5), make_train_output(seed=6))


def test_a_group_shares_its_prompt_and_nothing_else() -> None:
    output = make_train_output(3, 4, first_group_index=10)
    assert [len(group) for group in output.samples] == [4, 4, 4]
    for group_index, group in enumerate(output.samples, start=10):
        assert {sample.group_index for sample in group} == {group_index}
        assert [sample.index for sample in group] == list(range(group_index * 4, group_index * 4 + 4))
        assert all(sample.prompt == group[0].prompt and sample.label == group[0].label for sample in group)
        assert len({tuple(sample.tokens) for sample in group}) == 4
        assert group[0].prompt is not group[1].prompt
    assert len({str(group[0].prompt) for group in output.samples}) == 3


def test_an_eval_numbers_from_zero_in_each_dataset_and_asks_the_same_prompts_again() -> None:
    first, second = make_eval_output({"a": 2, "b": 1}, seed=1), make_eval_output({"a": 2, "b": 1}, seed=2)
    for name, count in (("a", 4), ("b", 2)):
        samples = first.data[name]["samples"]
        assert [sample.index for sample in samples] == list(range(count))
        assert first.data[name]["rewards"] == [sample.reward for sample in samples]
        assert first.data[name]["truncated"] == [False] * count
        assert [each.prompt for each in samples] == [each.prompt for each in second.data[name]["samples"]]
        assert samples[0].prompt == samples[1].prompt
    assert first.data["a"]["samples"][0].prompt != first.data["b"]["samples"][0].prompt
    assert not same(first, second)


def test_a_pending_sample_has_only_a_prompt_and_an_aborted_one_no_reward() -> None:
    pending, aborted = make_sample(status="pending"), make_sample(status="aborted")
    assert (pending.response, pending.response_length, pending.rollout_log_probs) == ("", 0, None)
    assert len(pending.tokens) == 16
    assert aborted.reward is None
    assert aborted.response_length == 64


def test_fields_and_undeclared_attributes_can_be_given() -> None:
    sample = make_sample(reward={"acc": 1}, tool_iters=3, metadata=None)
    assert_same((sample.reward, vars(sample)["tool_iters"], sample.metadata), ({"acc": 1}, 3, None))


def test_an_output_of_nothing_is_possible() -> None:
    assert make_train_output(0).samples == []
    assert make_train_output(2, 0).samples == [[], []]
    assert make_eval_output({}).data == {}
