"""Section D of the cases: rewards that are no plain number."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from typing import Any

import numpy as np
import pytest
import torch

from slime_store import RolloutFnEvalOutput, Sample
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import loaded_eval, run_of
from tests.cases.trips import found, round_trip
from tests.services.tables import row, rows, tables


def mean(url: str, key: str, depth: int = 1) -> tuple[Any, ...]:
    """Return (mean, number) of one entry of the dict rewards."""
    quoted = key.replace("'", "''")
    return row(url, f"SELECT avg(value), count(value) FROM sample_rewards WHERE depth = {depth} AND key = '{quoted}'")


def test_d1_rewards_of_every_kind_come_back_and_only_numbers_enter_the_mean(store_url: str) -> None:
    teacher = {"meta_info": {"input_token_logprobs": [[-0.1, 5, None], [-0.2, 6, "x"]] * 15_000, "id": "a" * 40}}
    rewards: list[Any] = [None, 0.5, {"score": 1.0, "acc": True, "pred": ""}, teacher]
    samples = [Sample(index=i, reward=reward) for i, reward in enumerate(rewards)]
    assert_same(round_trip(store_url, *samples), samples)
    summary = (
        "SELECT count(*), sum(CASE WHEN reward_type = 'none' THEN 1 ELSE 0 END),"
        " sum(CASE WHEN reward_type = 'dict' THEN 1 ELSE 0 END), avg(reward) FROM samples"
    )
    assert row(store_url, summary) == (4, 1, 2, 0.5)
    assert mean(store_url, "score") == (1.0, 1)
    assert mean(store_url, "acc") == (1.0, 1)
    assert mean(store_url, "pred") == (None, 0)
    assert found(store_url, reward_min=0) == [1]
    assert found(store_url, reward_key="score", reward_min=1) == [2]


@pytest.mark.parametrize(
    "reward",
    [
        OrderedDict(acc=1),
        defaultdict(float, acc=1.0),
        Counter(acc=1),
        {"acc": np.float32(1)},
        {"acc": torch.tensor(1.0)},
        {"acc": True},
        {None: 0, 1: 0, "acc": 1},
    ],
    ids=repr,
)
def test_d1_numbers_of_any_type_in_any_kind_of_dict_can_be_asked_for(store_url: str, reward: Any) -> None:
    assert_same(round_trip(store_url, Sample(index=4, reward=reward))[0].reward, reward)
    assert mean(store_url, "acc") == (1.0, 1)
    assert found(store_url, reward_key="acc", reward_min=1, reward_max=1) == [4]


def test_d2_entries_stay_with_their_samples_when_the_keys_differ(store_url: str) -> None:
    round_trip(store_url, *[Sample(reward=each) for each in ({"acc": 1}, {"acc": 0, "fmt": 1}, {"fmt": 0}, {})])
    entries = rows(store_url, "SELECT position, key, value FROM sample_rewards ORDER BY key, position")
    assert entries == [(0, "acc", 1.0), (1, "acc", 0.0), (1, "fmt", 1.0), (2, "fmt", 0.0)]


def test_d3_keys_of_any_text_can_be_asked_for(store_url: str) -> None:
    reward = {"math.acc": 1, "a b": 2, 'q"uote': 3, "准确": 4, "nest": {"x": 5}, "": 6, "it's": 7, "\\": 8, "%": 9}
    confusing = {"math": {"acc": 10}, "nest.x": 11, '["nest","x"]': 12, "nul\x00": 13, "\ud83d": 14, "a": {"\x00": 15}}
    confusing |= {"准": {"q'\"\\": {"": 16}}}
    assert_same(
        round_trip(store_url, Sample(index=0, reward=reward), Sample(index=1, reward=confusing)),
        [Sample(index=0, reward=reward), Sample(index=1, reward=confusing)],
    )
    for index, each in enumerate((reward, confusing)):
        for key, entry in each.items():
            path: Any = key
            while isinstance(entry, dict):
                ((key, entry),) = entry.items()
                path = (*([path] if isinstance(path, str) else path), key)
            bounds = {"reward_min": entry, "reward_max": entry}
            assert found(store_url, reward_key=path, **bounds) == [index], path
    assert mean(store_url, "math.acc") == (1.0, 1)
    assert mean(store_url, '["nest","x"]', depth=2) == (5.0, 1)


@pytest.mark.parametrize("key", ["'; drop table samples;--", "x", "acc", ("math", "acc", "x"), ("nest",), ("", "")])
def test_d3_a_key_that_no_reward_has_finds_nothing_and_harms_nothing(store_url: str, key: Any) -> None:
    samples = [Sample(reward={"math.acc": 1, "nest": {"x": 5}, "math": {"acc": 1}, "": 1})]
    round_trip(store_url, *samples)
    before = tables(store_url)
    assert found(store_url, reward_key=key, reward_min=-1e9) == []
    assert tables(store_url) == before
    assert row(store_url, "SELECT count(*) FROM samples") == (1,)


def test_d3_a_reward_of_very_many_keys_is_kept_whole(store_url: str) -> None:
    reward = {f"key {i}": float(i) for i in range(3000)}
    assert_same(round_trip(store_url, Sample(index=1, reward=reward))[0].reward, reward)
    assert found(store_url, reward_key="key 9", reward_min=9, reward_max=9) == [1]


def test_d4_the_lists_of_an_eval_are_kept_as_given(store_url: str) -> None:
    samples = [Sample(reward={"score": 1.0}), Sample(reward=None), Sample(reward={"score": 0.0})]
    dataset = {"rewards": [1.0, None, 0.0], "truncated": [False, True, False], "samples": samples, "judge": ("x", 1)}
    with run_of(store_url) as run:
        run.record_eval(0, RolloutFnEvalOutput({"d": dataset}))
    loaded = loaded_eval(store_url, 0).data["d"]
    assert loaded["rewards"] == [1.0, None, 0.0]
    assert_same(loaded, dataset)
    assert row(store_url, "SELECT avg(eval_reward), count(eval_reward), count(*) FROM samples") == (0.5, 2, 3)
    assert rows(store_url, "SELECT position FROM samples WHERE eval_truncated") == [(1,)]
    assert row(store_url, "SELECT avg(reward), count(reward) FROM samples") == (None, 0)


@pytest.mark.parametrize(
    "given",
    [
        (1.0, 0.5),
        [True, np.float32(0.5)],
        np.array([1.0, 0.5]),
        np.array([1.0, 0.5], np.float32),
        torch.tensor([1.0, 0.5]),
        [np.int64(1), torch.tensor(0.5)],
    ],
    ids=repr,
)
def test_d4_rewards_of_any_sequence_can_be_asked_for(store_url: str, given: Any) -> None:
    data = {"d": {"rewards": given, "truncated": np.array([True, False]), "samples": [Sample(), Sample()]}}
    with run_of(store_url) as run:
        run.record_eval(0, data)
    assert_same(loaded_eval(store_url, 0).data, data)
    assert rows(store_url, "SELECT eval_reward FROM samples ORDER BY position") == [(1.0,), (0.5,)]
    assert rows(store_url, "SELECT position FROM samples WHERE eval_truncated") == [(0,)]


@pytest.mark.parametrize("given", [[1.0], [1.0, 0.0, 1.0], "ab", None, 3, {"a": 1, "b": 2}, np.array(1.0)], ids=repr)
def test_d4_a_list_that_does_not_fit_the_samples_is_kept_but_says_nothing_of_them(store_url: str, given: Any) -> None:
    data = {"d": {"rewards": given, "truncated": given, "samples": [Sample(), Sample()]}}
    with run_of(store_url) as run:
        run.record_eval(0, data)
    assert_same(loaded_eval(store_url, 0).data, data)
    assert rows(store_url, "SELECT DISTINCT eval_reward, eval_truncated FROM samples") == [(None, None)]
