"""Section D of the cases, asked as questions: rewards that are no plain number."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from slime_store import RolloutFnEvalOutput, Sample, SampleFilter
from slime_store.dataframes import eval_df, eval_summary_df, samples_df, weight_versions_df
from slime_store.testing.contract.opening import run_of
from tests.cases.asked import ask, plain, record
from tests.services.tables import row, tables


def test_d1_a_summary_uses_plain_numbers_and_says_what_it_skipped(store_url: str) -> None:
    teacher = {"meta_info": {"input_token_logprobs": [[-0.1, 5, None]] * 30_000}}
    rewards: list[Any] = [None, 0.5, {"score": 1.0, "acc": True, "pred": ""}, teacher]
    record(store_url, *[Sample(reward=reward) for reward in rewards])
    (summary,) = ask(store_url, weight_versions_df).to_dict("records")
    assert [summary[name] for name in ("n_samples", "n_none", "n_rewards", "reward_mean")] == [4, 1, 1, 0.5]
    assert (ask(store_url, samples_df)["reward_type"] == "dict").sum() == 2
    (by_key,) = ask(store_url, weight_versions_df, SampleFilter(reward_key="score")).to_dict("records")
    assert [by_key[name] for name in ("n_samples", "n_none", "n_rewards", "reward_mean")] == [4, 3, 1, 1.0]
    whole = ask(store_url, samples_df, columns=["reward_json"])["reward_json"]
    assert plain(whole[:2]) == [None, "0.5"]
    assert json.loads(whole[2]) == rewards[2]


def test_d2_columns_of_entries_stay_with_their_samples(store_url: str) -> None:
    record(store_url, *[Sample(reward=each) for each in ({"acc": 1}, {"acc": 0, "fmt": 1}, {"fmt": 0}, {})])
    frame = ask(store_url, samples_df, columns=["reward.acc", "reward.fmt"])
    assert list(frame.columns) == ["reward.acc", "reward.fmt"]
    assert plain(frame["reward.acc"]) == [1.0, 0.0, None, None]
    assert plain(frame["reward.fmt"]) == [None, 1.0, 0.0, None]
    assert {str(dtype) for dtype in frame.dtypes} == {"float64"}


def test_d3_every_key_can_be_a_column(store_url: str) -> None:
    plain_keys = {"math.acc": 1, "a b": 2, 'q"uote': 3, "准确": 4, "": 6, "it's": 7, "[x": 8, "nul\x00": 9, "%": 10}
    reward = {**plain_keys, "nest": {"x": 5}, '["nest","x"]': 11, "math": {"acc": 12}}
    metadata = {key: f"m{value}" for key, value in plain_keys.items()} | {"nest": {"x": "deep", "y": [1, (2,)]}}
    record(store_url, Sample(reward=reward, metadata=metadata), Sample(reward=1.0))
    frame = ask(store_url, samples_df, columns=[f"reward.{key}" for key in plain_keys])
    assert list(frame.iloc[0]) == list(plain_keys.values())
    assert plain(frame.iloc[1]) == [None] * len(plain_keys)
    frame = ask(store_url, samples_df, columns=[f"metadata.{key}" for key in plain_keys])
    assert list(frame.iloc[0]) == [f"m{value}" for value in plain_keys.values()]
    paths = [("reward", "nest", "x"), 'reward.["math", "acc"]', ("reward", '["nest","x"]')]
    paths += [("metadata", "nest", "x"), 'metadata.["nest","y"]']
    frame = ask(store_url, samples_df, columns=paths)
    assert list(frame.iloc[0]) == [5.0, 12.0, 11.0, "deep", "[1,[2]]"]
    again = ask(store_url, samples_df, columns=list(frame.columns))  # names lead back to their columns
    assert list(again.columns) == list(frame.columns)
    assert list(again.iloc[0]) == list(frame.iloc[0])


@pytest.mark.parametrize("key", ["'; drop table samples;--", '"', "x", "\\", "$", "$.math"])
def test_d3_a_key_that_nothing_has_is_an_empty_column(store_url: str, key: str) -> None:
    record(store_url, Sample(reward={"math.acc": 1}, metadata={"math": 1}))
    before = tables(store_url)
    frame = ask(store_url, samples_df, columns=[f"reward.{key}", f"metadata.{key}"])
    assert plain(frame.iloc[0]) == [None, None]
    assert tables(store_url) == before
    assert row(store_url, "SELECT count(*) FROM samples") == (1,)


def test_d4_an_eval_is_measured_by_its_own_list(store_url: str) -> None:
    samples = [Sample(reward={"score": 1.0}), Sample(reward=None), Sample(reward={"score": 0.0})]
    dataset = {"rewards": [1.0, None, 0.0], "truncated": [False, True, False], "samples": samples}
    with run_of(store_url) as run:
        run.record_eval(3, RolloutFnEvalOutput({"d": dataset}), weight_version="9")
        run.record_train(3, [[Sample(reward=1.0)]])
    frame = ask(store_url, eval_df)
    assert plain(frame["eval_reward"]) == [1.0, None, 0.0]
    assert plain(frame["eval_truncated"]) == [False, True, False]
    assert plain(frame["reward"]) == [None, None, None]
    assert list(frame["dataset"]) == ["d"] * 3
    assert list(frame["weight_version"]) == ["9"] * 3
    (summary,) = ask(store_url, eval_summary_df).to_dict("records")
    assert (summary["n_rewards"], summary["n_samples"], summary["reward_mean"]) == (2, 3, 0.5)
    assert summary["truncated_share"] == pytest.approx(1 / 3)
    assert ask(store_url, eval_df, SampleFilter(kind="train")).empty


def test_d4_a_list_that_lacks_rewards_leaves_the_samples_word(store_url: str) -> None:
    with run_of(store_url) as run:
        data = {
            "own": {"samples": [Sample(reward=1.0, status=Sample.Status.TRUNCATED), Sample(reward=math.nan)]},
            "given": {"rewards": [0.25, None], "samples": [Sample(reward=1.0), Sample(reward=1.0)]},
            "nothing": {"samples": []},
        }
        run.record_eval(0, data)
    summary = ask(store_url, eval_summary_df)
    assert list(summary["dataset"]) == ["own", "given"]
    assert list(summary["reward_mean"]) == [1.0, 0.25]
    assert list(summary["truncated_share"]) == [0.5, 0.0]
    only = ask(store_url, eval_summary_df, SampleFilter(dataset="given", status="pending"))
    assert list(only["reward_mean"]) == [0.25]
