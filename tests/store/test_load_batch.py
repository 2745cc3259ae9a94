"""A batch from the store's bytes equals the one that is made from the samples, one by one."""

from __future__ import annotations

import copy
import uuid
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slime_store import RolloutFnTrainOutput, Sample, SampleStore
from slime_store.errors import BatchError, RolloutNotFoundError
from slime_store.testing import assert_same, make_train_output, strategies
from slime_store.testing.contract.opening import opened, run_of
from slime_store.types import iter_leaf_samples

_DTYPES = {
    "rollout_log_probs": torch.float32,
    "teacher_log_probs": torch.float32,
    "rollout_top_p_token_ids": torch.int32,
    "rollout_top_p_token_offsets": torch.int32,
    "rollout_routed_experts": None,
}


def plain_batch(samples: list[Any]) -> dict[str, list[Any]]:
    """The batch in the obvious way. Raises what torch raises for values that make no tensor."""

    def tensor(value: Any, dtype: torch.dtype | None) -> torch.Tensor:
        return torch.as_tensor(value).to(dtype or torch.as_tensor(value).dtype)

    masks = []
    for sample in samples:
        mask = [1] * sample.response_length if sample.loss_mask is None else sample.loss_mask
        if len(mask) != sample.response_length:
            raise ValueError("a mask of another length")
        masks.append(tensor([0] * len(mask) if sample.remove_sample else mask, torch.int32))
    taken = {sample.rollout_id for sample in samples}
    free = iter(number for number in range(2 * len(samples) + 1) if number not in taken)
    ids = [next(free) if sample.rollout_id is None else sample.rollout_id for sample in samples]
    sums = {key: sum(int(mask.sum()) for other, mask in zip(ids, masks, strict=True) if other == key) for key in ids}
    metadata = [sample.metadata if isinstance(sample.metadata, dict) else {} for sample in samples]
    lengths = [sample.response_length for sample in samples]
    batch: dict[str, list[Any]] = {
        "tokens": [tensor(sample.tokens, torch.int64) for sample in samples],
        "response_length": lengths,
        "response_lengths": lengths,
        "rewards": [sample.reward for sample in samples],
        "raw_reward": [m.get("raw_reward", s.reward) for m, s in zip(metadata, samples, strict=True)],
        "truncated": [int(sample.status is Sample.Status.TRUNCATED) for sample in samples],
        "sample_indices": [sample.index for sample in samples],
        "rollout_ids": ids,
        "rollout_mask_sums": [sums[key] for key in ids],
        "loss_mask": masks,
        "loss_masks": masks,
        "prompt": [sample.prompt for sample in samples],
        "response": [sample.response for sample in samples],
    }
    for name, dtype in _DTYPES.items():
        values = [getattr(sample, name) for sample in samples]
        if any(value is not None for value in values):
            batch[name] = [None if value is None else tensor(value, dtype) for value in values]
    for key, name in (("metadata", "train_metadata"), ("multimodal_train_inputs", "multimodal_train_inputs")):
        values = [getattr(sample, name) for sample in samples]
        if any(value is not None for value in values):
            batch[key] = values
    if metadata and "round_number" in metadata[0]:
        batch["round_number"] = [m.get("round_number") for m in metadata]
    return batch


@settings(
    max_examples=max(20, settings().max_examples),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(output=strategies.train_outputs(), data=st.data())
def test_a_batch_equals_the_one_made_from_samples(store_url: str, output: RolloutFnTrainOutput, data: Any) -> None:
    samples = list(iter_leaf_samples(output.samples))
    for sample in samples:
        if isinstance(sample.metadata, dict) and data.draw(st.booleans()):
            sample.metadata["raw_reward"], sample.metadata["round_number"] = 0.5, 3
    with run_of(store_url, uuid.uuid4().hex) as run:
        run.record_train(0, output)
        try:
            expected = plain_batch(copy.deepcopy(samples))
        except (ValueError, TypeError, RuntimeError):
            with pytest.raises(BatchError, match="train rollout 0, sample"):
                run.load_batch(0)
            return
        batch = run.load_batch(0)
    assert batch.keys() == expected.keys()
    assert_same(batch, {name: expected[name] for name in batch})


def test_long_lists_arrays_and_tensors_all_become_the_trainers_dtypes(store_url: str) -> None:
    ids, log_probs = np.arange(150_000, 150_100), np.linspace(-9, 0, 40)
    forms = [
        Sample(tokens=ids.tolist(), rollout_log_probs=log_probs.tolist(), loss_mask=[0, 1] * 20),
        Sample(
            tokens=ids.astype(np.int32), rollout_log_probs=log_probs.astype(np.float32), loss_mask=np.ones(40, bool)
        ),
        Sample(
            tokens=torch.tensor(ids),
            rollout_log_probs=torch.tensor(log_probs, dtype=torch.bfloat16),
            loss_mask=torch.ones(40, dtype=torch.int64),
        ),
        Sample(tokens=[*ids.tolist()[:-1], np.int64(7)], rollout_log_probs=[0, -1.5] * 20, loss_mask=[True] * 40),
    ]
    for sample in forms:
        sample.response_length = 40
    with opened(store_url) as store:
        run = store.run("run")
        run.record_train(0, [forms])
        batch = run.load_batch(0)
    assert_same(batch, {name: plain_batch(forms)[name] for name in batch})
    assert {tensor.dtype for tensor in batch["tokens"]} == {torch.int64}
    assert {tensor.dtype for tensor in batch["rollout_log_probs"]} == {torch.float32}
    assert {tensor.dtype for tensor in batch["loss_masks"]} == {torch.int32}


def test_each_tensor_has_memory_of_its_own(sqlite_url: str) -> None:
    run = SampleStore.open(sqlite_url).run("run")
    run.record_train(0, make_train_output(n_groups=2, n_samples_per_group=2))
    for name in ("tokens", "loss_masks", "rollout_log_probs"):
        tensors = run.load_batch(0)[name]
        others = [tensor.tolist() for tensor in tensors[1:]]
        for tensor in tensors:
            assert tensor.untyped_storage().nbytes() == tensor.nbytes
        tensors[0].fill_(7)
        assert [tensor.tolist() for tensor in tensors[1:]] == others


def test_log_probs_beyond_float32_become_infinite_without_a_warning(sqlite_url: str) -> None:
    run = SampleStore.open(sqlite_url).run("run")
    run.record_train(0, [[Sample(response_length=2, rollout_log_probs=[-1e300, 0.1])]])
    [log_probs] = run.load_batch(0)["rollout_log_probs"]
    assert_same(log_probs, torch.tensor([-1e300, 0.1], dtype=torch.float32))


def test_an_entry_of_dict_rewards_can_be_taken(sqlite_url: str) -> None:
    run = SampleStore.open(sqlite_url).run("run")
    run.record_train(0, [[Sample(reward={"math.acc": 1, "b": 2.5}), Sample(reward={"math.acc": 0})]])
    assert run.load_batch(0)["rewards"] == [{"math.acc": 1, "b": 2.5}, {"math.acc": 0}]
    assert run.load_batch(0, reward_key="math.acc")["rewards"] == [1, 0]
    with pytest.raises(BatchError, match="sample 1: its reward has no 'b'"):
        run.load_batch(0, reward_key="b")


def test_no_rollout_is_an_error_and_an_older_attempt_can_be_asked_for(sqlite_url: str) -> None:
    run = SampleStore.open(sqlite_url).run("run")
    run.record_train(3, [[Sample(response="old")]])
    run.record_train(3, [[Sample(response="new")]])
    assert run.load_batch(3)["response"] == ["new"]
    assert run.load_batch(3, attempt=1)["response"] == ["old"]
    with pytest.raises(RolloutNotFoundError):
        run.load_batch(4)


@pytest.mark.parametrize("mask", [None, np.empty((10**10, 0), np.int32)], ids=["no mask", "a mask of no bytes"])
def test_no_mask_is_made_as_long_as_tokens_that_take_no_bytes(sqlite_url: str, mask: Any) -> None:
    run = SampleStore.open(sqlite_url).run("run")
    sample = Sample(tokens=np.empty((10**10, 0), np.int64), response_length=10**10, loss_mask=mask)
    sample.remove_sample = mask is not None
    run.record_train(0, [[sample]])
    with pytest.raises(BatchError):
        run.load_batch(0)
