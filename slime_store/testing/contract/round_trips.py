# ruff: noqa: D102  (a test's name is its docstring)
"""The contract on exactness: what is loaded is what was recorded."""

from __future__ import annotations

import copy
import math
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from slime_store.testing import strategies
from slime_store.testing.compare import assert_same
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened, run_of
from slime_store.testing.factories import make_eval_output, make_sample, make_train_output
from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample

# the fixture may serve all examples (each takes a run of its own), and subclasses share the test
_PROPERTY = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.differing_executors,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
_A = make_sample(0)

SHAPES: dict[str, list[Any]] = {
    "no group": [],
    "one empty group": [[]],
    "an empty group first": [[], [_A]],
    "flat": [make_sample(i) for i in range(3)],
    "groups of different sizes": [[make_sample(i) for i in range(size)] for size in (1, 8, 3)],
    "segments": [[[make_sample(0, rollout_id=7), make_sample(0, rollout_id=7)], [make_sample(1)]]],
    "mixed depths": [
        [make_sample(0), make_sample(1)],
        [[make_sample(2)], [make_sample(3)]],
        [make_sample(4)],
    ],
    "a list beside samples": [[make_sample(0), [make_sample(1), make_sample(2)]]],
}


def _everything() -> Sample:
    """A sample in which no field has its default and many values are awkward."""
    sample = make_sample(
        2**31,
        group_index=2**40,
        n_turns=2,
        rollout_id=3000,
        multimodal_inputs={"images": None, "videos": [("/data/a.mp4", {"fps": 2.0})]},
        multimodal_train_inputs={"second_per_grid_ts": [0.5], "none": None},
        multimodal_train_input_id="m",
        apply_chat_template_kwargs={"enable_thinking": False},
        response="nul \x00 half \ud83d emoji",
        label={"ground_truth": "007"},
        reward={"math.acc": 1, "a b": -0.0, "": math.nan, "pred": "", "ok": True},
        rollout_top_p_token_ids=[1, 2],
        rollout_top_p_token_offsets=[0, 2],
        rollout_routed_experts=[[0, 127], [5, 6]],
        remove_sample=True,
        teacher_log_probs=[math.nan, -math.inf, 0.1],
        generate_function_path="a.b",
        custom_rm_path="c.d",
        train_metadata={},
        session_id="s",
        non_generation_time=0.1,
        tool_call_count=3,
    )
    sample.metadata = {
        1: "int", "1": "text", None: "none", (0, 1): "tuple",
        "deep": [{"box": (1, 2.0), "set": {3}, "bytes": b"\xff", "complex": 1 + 2j}],
        "numbers": [2**64 - 1, -(2**70), 5e-324, -0.0, math.inf],
        "nul\x00key": "\x00", "$int": "not a tag", "empty": [[], {}, (), "", None],
    }  # fmt: skip
    return sample


class RoundTripContract:
    """Nesting, order, types and values survive; what was recorded stays as it was."""

    @pytest.mark.parametrize("shape", SHAPES)
    def test_a_train_rollout_comes_back_with_its_nesting_and_order(self, store_url: str, shape: str) -> None:
        output = RolloutFnTrainOutput(SHAPES[shape], {"loss": 0.5})
        with run_of(store_url) as run:
            run.record_train(0, output)
        assert_same(loaded_train(store_url, 0), output)

    def test_a_bare_list_comes_back_as_an_output_without_metrics(self, store_url: str) -> None:
        groups = make_train_output().samples
        with run_of(store_url) as run:
            run.record_train(0, groups)
        assert_same(loaded_train(store_url, 0), RolloutFnTrainOutput(groups, None))

    @pytest.mark.parametrize("metrics", [None, {}, {"kl": math.nan, "n": 1, "x": [1, True, None], 3: "three"}])
    def test_metrics_come_back_and_none_is_not_empty(self, store_url: str, metrics: Any) -> None:
        with run_of(store_url) as run:
            run.record_train(0, RolloutFnTrainOutput([[_A]], metrics))
            run.record_eval(0, RolloutFnEvalOutput({}, metrics))
        assert_same(loaded_train(store_url, 0).metrics, metrics)
        assert_same(loaded_eval(store_url, 0).metrics, metrics)

    def test_every_field_and_undeclared_attribute_comes_back(self, store_url: str) -> None:
        sample = _everything()
        with run_of(store_url) as run:
            run.record_train(0, [[sample, make_sample(1)]])
        loaded = loaded_train(store_url, 0).samples[0][0]
        assert_same(loaded, sample)
        assert loaded.tool_call_count == 3

    def test_a_bare_sample_and_none_in_place_of_containers_come_back(self, store_url: str) -> None:
        odd = Sample(metadata=None, loss_mask=[], rollout_log_probs=[], train_metadata={}, reward=None)  # type: ignore[arg-type]
        with run_of(store_url) as run:
            run.record_train(0, [[Sample(), odd]])
        assert_same(loaded_train(store_url, 0).samples, [[Sample(), odd]])

    @pytest.mark.parametrize("reward", [0, 0.0, False, -0.0, None, math.nan, math.inf, "1.0", [1.0], {}, 2**80])
    def test_a_reward_keeps_its_type(self, store_url: str, reward: Any) -> None:
        with run_of(store_url) as run:
            run.record_train(0, [[Sample(reward=reward)]])
        assert_same(loaded_train(store_url, 0).samples[0][0].reward, reward)

    def test_an_eval_comes_back_with_datasets_lists_and_other_keys(self, store_url: str) -> None:
        output = make_eval_output({"math": 2, "code": 2, "empty": 0})
        output.data["math"]["rewards"] = [1.0, None, 0, True]  # not what the samples say: kept as given
        output.data["math"]["judge"] = {"name": "rule", "box": (1, 2)}
        output.data["bare"] = {}
        with run_of(store_url) as run:
            run.record_eval(3, output)
        loaded = loaded_eval(store_url, 3)
        assert_same(loaded, output)
        assert loaded.data["code"]["samples"][0].index == 0

    def test_an_eval_given_as_a_bare_dict_comes_back(self, store_url: str) -> None:
        data = make_eval_output().data
        with run_of(store_url) as run:
            run.record_eval(0, data)
        assert_same(loaded_eval(store_url, 0), RolloutFnEvalOutput(data, None))

    def test_recording_does_not_change_what_is_recorded(self, store_url: str) -> None:
        output = RolloutFnTrainOutput([[_everything()]], {"loss": 0.5})
        before = copy.deepcopy(output)
        with run_of(store_url) as run:
            run.record_train(0, output)
        assert_same(output, before)

    def test_what_is_loaded_twice_is_equal_and_independent(self, store_url: str) -> None:
        output = make_train_output()
        with run_of(store_url) as run:
            run.record_train(0, output)
            first = run.load_train(0)
            for sample in first.samples[0]:
                sample.tokens.append(1)
                sample.metadata["source"] = "changed"
                sample.prompt[0]["content"] = "changed"  # type: ignore[index]
            assert_same(run.load_train(0), output)

    def test_the_config_of_a_run_comes_back(self, store_url: str) -> None:
        config = {"lr": 1e-6, "steps": (1, 2), "name": "\ud83d", "none": None}
        with opened(store_url) as store:
            store.run("a", config=config)
            store.run("b")
        with opened(store_url, read_only=True) as store:
            assert_same({info.name: info.config for info in store.runs()}, {"a": config, "b": None})

    @_PROPERTY
    @given(output=strategies.train_outputs())
    def test_any_train_output_comes_back(self, store_url: str, output: RolloutFnTrainOutput) -> None:
        name, expected = uuid.uuid4().hex, copy.deepcopy(output)
        with run_of(store_url, name) as run:
            run.record_train(0, output)
        assert_same(loaded_train(store_url, 0, name), expected)

    @_PROPERTY
    @given(output=strategies.eval_outputs())
    def test_any_eval_output_comes_back(self, store_url: str, output: RolloutFnEvalOutput) -> None:
        name, expected = uuid.uuid4().hex, copy.deepcopy(output)
        with run_of(store_url, name) as run:
            run.record_eval(0, output)
        assert_same(loaded_eval(store_url, 0, name), expected)

    @_PROPERTY
    @given(value=strategies.documents())
    def test_any_value_comes_back_from_metadata(self, store_url: str, value: Any) -> None:
        name, expected = uuid.uuid4().hex, copy.deepcopy(value)
        with run_of(store_url, name) as run:
            run.record_train(0, [[Sample(metadata={"value": value})]])
        assert_same(loaded_train(store_url, 0, name).samples[0][0].metadata, {"value": expected})
