"""Sample: slime's fields, dicts that interchange with slime's, plain mutable data."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from slime_store.types import Sample


def test_the_fields_are_slimes_in_slimes_order() -> None:
    assert [field.name for field in fields(Sample)] == [
        *("group_index", "index", "rollout_id", "prompt", "tokens"),
        *("multimodal_inputs", "multimodal_train_inputs", "multimodal_train_input_id", "apply_chat_template_kwargs"),
        *("response", "response_length", "label", "reward", "loss_mask", "weight_versions", "rollout_log_probs"),
        *("rollout_top_p_token_ids", "rollout_top_p_token_offsets", "rollout_routed_experts"),
        *("remove_sample", "teacher_log_probs", "status", "metadata", "generate_function_path", "custom_rm_path"),
        *("train_metadata", "session_id", "non_generation_time", "spec_info", "prefix_cache_info"),
    ]


def test_a_bare_sample_is_pending_and_empty() -> None:
    sample = Sample()
    assert sample.status is Sample.Status.PENDING
    assert (sample.prompt, sample.response, sample.tokens, sample.metadata) == ("", "", [], {})
    assert (sample.reward, sample.loss_mask, sample.group_index, sample.train_metadata) == (None, None, None, None)
    assert (sample.remove_sample, sample.non_generation_time, sample.response_length) == (False, 0.0, 0)


def test_two_samples_share_no_default() -> None:
    one, other = Sample(), Sample()
    for name in ("tokens", "metadata", "weight_versions", "apply_chat_template_kwargs", "spec_info"):
        assert getattr(one, name) is not getattr(other, name)


def test_the_effective_length_counts_the_mask_or_without_one_every_response_token() -> None:
    assert Sample(response_length=10, loss_mask=[1, 1, 0, 0, 1, 1, 1, 1, 1, 1]).effective_response_length == 8
    assert Sample(response_length=10).effective_response_length == 10
    assert Sample(response_length=10, loss_mask=[]).effective_response_length == 0


def test_the_reward_value_is_the_reward_or_its_entry() -> None:
    assert Sample(reward=0.5).get_reward_value(SimpleNamespace(reward_key=None)) == 0.5
    assert Sample(reward={"task": 0.8}).get_reward_value(SimpleNamespace(reward_key="task")) == 0.8
    with pytest.raises(KeyError):
        Sample(reward={"task": 0.8}).get_reward_value(SimpleNamespace(reward_key="other"))


def test_spec_info_adds_up_calls_and_derives_rates() -> None:
    info = Sample.SpecInfo()
    assert (info.spec_accept_rate, info.spec_accept_length) == (0.0, 0.0)
    call = {"spec_accept_token_num": 3, "spec_draft_token_num": 4, "spec_verify_ct": 2, "completion_tokens": 5}
    info.add(call)
    info.add(call)
    info.add({})
    assert info == Sample.SpecInfo(6, 8, 4, 10)
    assert (info.spec_accept_rate, info.spec_accept_length) == (0.75, 2.5)


def test_prefix_cache_info_adds_up_calls_and_derives_the_rate() -> None:
    info = Sample.PrefixCacheInfo()
    assert info.prefix_cache_hit_rate == 0.0
    info.add({"cached_tokens": 3, "prompt_tokens": 4})
    assert (info, info.prefix_cache_hit_rate) == (Sample.PrefixCacheInfo(3, 4), 0.75)


def test_a_dict_holds_words_and_dicts_and_undeclared_attributes() -> None:
    sample = Sample(status=Sample.Status.TRUNCATED, spec_info=Sample.SpecInfo(1, 2, 3, 4))
    sample.tool_call_count = 3  # type: ignore[attr-defined]
    data = sample.to_dict()
    assert data["status"] == "truncated"
    assert data["spec_info"] == {
        "spec_accept_token_num": 1,
        "spec_draft_token_num": 2,
        "spec_verify_ct": 3,
        "completion_token_num": 4,
    }
    assert data["prefix_cache_info"] == {"cached_tokens": 0, "total_prompt_tokens": 0}
    assert data["tool_call_count"] == 3
    assert data["metadata"] is sample.metadata
    assert list(data) == [*(field.name for field in fields(Sample)), "tool_call_count"]


def test_to_dict_leaves_the_sample_alone_and_from_dict_the_dict() -> None:
    sample = Sample(metadata={"a": 1})
    data = sample.to_dict()
    before = copy.deepcopy(data)
    again = Sample.from_dict(data)
    assert data == before
    assert again == sample
    assert again is not sample
    assert sample.status is Sample.Status.PENDING


def test_from_dict_keeps_unknown_keys_as_attributes() -> None:
    data = Sample(index=1).to_dict() | {"adapter": ("lora", 0), "tool_iters": [1]}
    sample: Any = Sample.from_dict(data)
    assert (sample.adapter, sample.tool_iters) == (("lora", 0), [1])
    assert sample.to_dict() == data


def test_from_dict_takes_dumps_of_versions_that_lack_keys() -> None:
    assert Sample.from_dict({}) == Sample()
    assert Sample.from_dict({"status": "aborted", "spec_info": {}}) == Sample(status=Sample.Status.ABORTED)


def test_from_dict_keeps_counters_of_versions_that_have_more() -> None:
    data = Sample().to_dict()
    data["spec_info"]["spec_rejected"] = 9
    assert Sample.from_dict(data).to_dict() == data


def test_from_dict_names_a_status_it_does_not_know() -> None:
    with pytest.raises(ValueError, match=r"unknown sample status 'quarantined'; known are 'pending', 'completed'"):
        Sample.from_dict({"status": "quarantined"})


def test_samples_can_be_pickled_and_copied_with_everything_set_on_them() -> None:
    sample = Sample(index=1, status=Sample.Status.FAILED, metadata={"a": [1]}, spec_info=Sample.SpecInfo(1, 2, 3, 4))
    sample.trace = {"events": []}  # type: ignore[attr-defined]
    for copied in (pickle.loads(pickle.dumps(sample)), copy.deepcopy(sample)):
        assert copied.to_dict() == sample.to_dict()
        assert copied.status is Sample.Status.FAILED
        assert copied.metadata is not sample.metadata


def test_importing_the_types_loads_neither_torch_nor_numpy_nor_the_database() -> None:
    code = "import sys, slime_store.types; print([m for m in sys.modules if m.split('.')[0] in %r])"
    heavy = ("torch", "numpy", "pandas", "PIL", "sqlalchemy", "slime")
    out = subprocess.run([sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
