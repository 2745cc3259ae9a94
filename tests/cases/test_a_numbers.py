"""Section A of the cases, second part: integers of any size, numpy values, rewards and labels of any type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from slime_store import RolloutFnTrainOutput, Sample
from slime_store.errors import UnsupportedValueError
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import loaded_train, run_of
from tests.cases.trips import attribute, found, round_trip
from tests.services.tables import row, rows, value

BIG = [2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**70, -(2**63), -(2**63) - 1, -(2**70), 10**400]


# -- A8: integers past 64 bits ------------------------------------------------------------------------


def test_a8_integers_of_any_size_come_back(store_url: str) -> None:
    for name in ("index", "group_index", "rollout_id", "response_length", "reward", "label", "session_id"):
        assert_same(attribute(store_url, name, BIG), BIG, path=name)
    samples = [
        Sample(metadata={"hash": big, "list": [big, [big]], "set": {big}}, reward={"h": big}, tokens=[big, 1])
        for big in BIG
    ]
    samples.append(Sample(spec_info=Sample.SpecInfo(2**40, 2**64), prefix_cache_info=Sample.PrefixCacheInfo(2**63)))
    assert_same(round_trip(store_url, *samples), samples)


def test_a8_what_64_bits_hold_can_be_asked_for(store_url: str) -> None:
    round_trip(store_url, Sample(index=2**31, group_index=2**40), Sample(index=2**63 - 1, group_index=-(2**63)))
    assert found(store_url, group_index=2**40) == [2**31]
    assert found(store_url, group_index=-(2**63)) == [2**63 - 1]
    assert rows(store_url, "SELECT sample_index FROM samples ORDER BY position") == [(2**31,), (2**63 - 1,)]


def test_a8_what_64_bits_do_not_hold_has_no_number_to_ask_for(store_url: str) -> None:
    round_trip(store_url, Sample(index=2**63, group_index=2**63, response_length=2**70))
    query = "SELECT sample_index, group_index, response_length FROM samples"
    assert row(store_url, query) == (None, None, None)
    for conditions in (
        {"group_index": 2**63},
        {"rollout_ids": 2**63},
        {"rollout_ids": [0, -(2**70)]},
        {"rollout_ids": range(2**70)},
        {"rollout_ids": f"{2**63}:"},
        {"rollout_ids": f":{2**70}"},
    ):
        with pytest.raises(ValueError, match="64 bits"):
            found(store_url, **conditions)
    assert found(store_url, rollout_ids=range(2**63)) == found(store_url, rollout_ids="0:") == [2**63]


def test_a8_a_rollout_id_past_64_bits_is_refused(store_url: str) -> None:
    with run_of(store_url) as run:
        for rollout_id in (2**63, -(2**63) - 1, 1.0, True, "1", None):
            with pytest.raises(UnsupportedValueError, match="rollout_id"):
                run.record_train(rollout_id, [[Sample()]])  # type: ignore[arg-type]
        run.record_train(2**63 - 1, [[Sample(index=1)]])
        run.record_train(np.int64(-5), [[Sample(index=2)]])  # type: ignore[arg-type]
        assert [info.rollout_id for info in run.rollouts()] == [-5, 2**63 - 1]
    assert loaded_train(store_url, 2**63 - 1).samples[0][0].index == 1


# -- A9, A10: numpy values ----------------------------------------------------------------------------


def _numpy_sample() -> Sample:
    return Sample(
        index=np.int64(3),  # type: ignore[arg-type]
        group_index=np.uint8(9),  # type: ignore[arg-type]
        rollout_id=np.uint64(2**64 - 1),  # type: ignore[arg-type]
        reward=np.float32(0.1),  # type: ignore[arg-type]
        response_length=np.int32(4),  # type: ignore[arg-type]
        remove_sample=np.bool_(True),  # type: ignore[arg-type]
        non_generation_time=np.float16(0.5),  # type: ignore[arg-type]
        tokens=list(np.arange(4)),
        loss_mask=list(np.array([1, 0, 1, 1], np.int8)),
        rollout_log_probs=list(np.array([-0.1, -0.0, np.nan, 0.5], np.float32)),
        spec_info=Sample.SpecInfo(np.int64(5)),  # type: ignore[arg-type]
        label=np.str_("x"),
        weight_versions=[np.str_("7")],
    )


def test_a9_numpy_scalars_come_back_as_numpy_scalars(store_url: str) -> None:
    samples = [Sample(index=1), _numpy_sample()]
    assert_same(round_trip(store_url, *samples), samples)


def test_a9_columns_hold_true_numbers(store_url: str) -> None:
    round_trip(store_url, Sample(index=1), _numpy_sample())
    assert found(store_url, group_index=9) == [3]
    assert found(store_url, removed=True) == [3]
    assert found(store_url, reward_max=0.2) == [3]
    assert found(store_url, weight_version="7") == [3]
    query = "SELECT group_index, response_length, n_tokens, effective_response_length, spec_accept_token_num"
    assert row(store_url, f"{query} FROM samples WHERE sample_index = 3") == (9, 4, 4, 3, 5)
    kind = "pg_typeof" if store_url.startswith("postgresql") else "typeof"
    query = f"SELECT {kind}(sample_index), {kind}(response_length), {kind}(spec_accept_token_num), {kind}(reward)"
    types = {tuple(map(str, types)) for types in rows(store_url, f"{query} FROM samples WHERE reward IS NOT NULL")}
    whole, real = ("bigint", "double precision") if store_url.startswith("postgresql") else ("integer", "real")
    assert types == {(whole, whole, whole, real)}


@pytest.mark.parametrize(
    "mask",
    [
        [1, 0, 1],
        [True, False, True],
        [1.0, 0.0, 1.0],
        [np.int64(1), np.int64(0), np.int64(1)],
        np.array([1, 0, 1], np.uint8),
        np.array([True, False, True]),
        np.array([1, 0, 1], np.float32),
        torch.tensor([1, 0, 1]),
        torch.tensor([True, False, True]),
    ],
    ids=lambda mask: f"{type(mask).__name__} of {getattr(mask, 'dtype', type(mask[0]).__name__)}",
)
def test_a9_the_effective_length_is_the_sum_of_the_mask_whatever_its_type(store_url: str, mask: Any) -> None:
    samples = round_trip(store_url, Sample(response_length=3, loss_mask=mask))
    assert_same(samples[0].loss_mask, mask)
    assert value(store_url, "SELECT effective_response_length FROM samples") == samples[0].effective_response_length


def test_a10_numpy_values_inside_documents_come_back(store_url: str) -> None:
    values = {
        "f": np.float32(0.1),
        "i": np.int64(2**40),
        "b": np.bool_(True),
        "a": np.arange(3),
        "n": np.float64("nan"),
        "s": np.str_("x"),
        "o": np.array(["a", None], object),
        "empty": np.empty((0, 3), np.float16),
        "none": np.array(None),
        "big endian": np.arange(3, dtype=">i4"),
        "time": np.datetime64("2026-01-02T03:04:05"),
        "large": np.arange(5000, dtype=np.uint16).reshape(50, 100),
        np.int64(1): "a numpy key",
    }
    output = RolloutFnTrainOutput([[Sample(metadata=dict(values), reward=dict(values))]], dict(values))
    with run_of(store_url) as run:
        run.record_train(0, output, state=values)
    loaded = loaded_train(store_url, 0)
    assert_same(loaded, output)
    loaded.samples[0][0].metadata["a"][0] = 7  # writable, and nobody else's
    assert loaded.samples[0][0].reward["a"][0] == 0


# -- A12, A13: types of rewards and labels ------------------------------------------------------------


def test_a12_rewards_keep_their_types_and_text_never_enters_a_mean(store_url: str) -> None:
    rewards = [1, 1.0, True, np.float32(1), "1.0", "correct"]
    assert_same(attribute(store_url, "reward", rewards), rewards)
    assert rows(store_url, "SELECT reward, reward_type FROM samples ORDER BY position") == [
        (1.0, "int"),
        (1.0, "float"),
        (1.0, "bool"),
        (1.0, "float"),
        (None, "str"),
        (None, "str"),
    ]
    assert row(store_url, "SELECT avg(reward), count(reward) FROM samples") == (1.0, 4)


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (np.bool_(False), (0.0, "bool")),
        (np.int8(-3), (-3.0, "int")),
        (2**80, (2.0**80, "int")),
        (-0.0, (0.0, "float")),
        (torch.tensor(0.5), (0.5, "float")),
        (torch.tensor([0.25], dtype=torch.bfloat16), (0.25, "float")),
        (torch.tensor([1.0, 2.0]), (None, "other")),
        (torch.tensor(float("nan")), (None, "nan")),
        ([1.0], (None, "other")),
        ({}, (None, "dict")),
    ],
    ids=repr,
)
def test_a12_other_rewards_have_a_number_where_they_are_one(store_url: str, reward: Any, expected: Any) -> None:
    assert_same(attribute(store_url, "reward", [reward]), [reward])
    assert row(store_url, "SELECT reward, reward_type FROM samples") == expected


def test_a13_labels_keep_their_types(store_url: str) -> None:
    labels = [42, ["a", "b"], {"ground_truth": "7"}, "", None, "007", 4.0, True, ("a",), b"x", np.int64(1)]
    assert_same(attribute(store_url, "label", labels), labels)
    texts = rows(store_url, "SELECT position, label FROM sample_texts WHERE label IS NOT NULL ORDER BY position")
    assert texts == [(3, ""), (5, "007")]  # what is no text is not found as text


def test_a13_responses_keep_their_types_too(store_url: str) -> None:
    responses = ["", None, 42, ["a"], "007"]
    assert_same(attribute(store_url, "response", responses), responses)
