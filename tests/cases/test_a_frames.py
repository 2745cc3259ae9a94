"""Section A of the cases, asked as questions: numbers and texts that databases treat unlike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from slime_store import Sample, SampleFilter
from slime_store.dataframes import groups_df, samples_df, weight_versions_df
from tests.cases.asked import ask, plain, record
from tests.cases.trips import found

REWARDS = [1.0, math.nan, 3.0, None, -math.inf, math.inf]


def test_a1_infinite_rewards_are_no_damage_where_the_whole_reward_is_shown(store_url: str) -> None:
    record(store_url, *[Sample(index=i, reward=reward) for i, reward in enumerate(REWARDS)])
    shown = ask(store_url, samples_df, columns=["reward_json"])["reward_json"]
    assert plain(shown) == ["1.0", "nan", "3.0", None, "-inf", "inf"]


@pytest.mark.parametrize("status", [None, "completed"])
def test_a1_rewards_whose_squares_no_double_holds_are_summed_alike_with_and_without_a_filter(
    store_url: str, status: str | None
) -> None:
    for rewards in ([1e-200, 2e-200, 1e-300], [1e-200, 5e-324, 0.0, 2.0]):
        samples = [Sample(reward=reward, status=Sample.Status.COMPLETED, metadata={"k": 1}) for reward in rewards]
        record(store_url, *samples)
        wheres = [SampleFilter(status=status), SampleFilter(status=status, metadata={"k": 1})]
        for attribute in ("last", "each"):
            frames = [ask(store_url, weight_versions_df, where, attribute=attribute) for where in wheres]
            for frame in frames:
                assert frame["n_rewards"].tolist() == [len(rewards)]
                assert frame["reward_mean"].tolist() == pytest.approx([np.mean(rewards)], abs=1e-99)
                assert frame["reward_std"].tolist() == pytest.approx([np.std(rewards, ddof=1)], abs=1e-99)


@pytest.mark.parametrize("where", [{}, {"status": "completed"}, {"metadata": {"k": 1}}])
def test_a1_beyond_1e100_there_is_no_mean_whatever_the_filter(store_url: str, where: dict[str, Any]) -> None:
    status = Sample.Status.COMPLETED
    record(store_url, *[Sample(reward=reward, status=status, metadata={"k": 1}) for reward in (1e120, 3.0)])
    (row,) = ask(store_url, weight_versions_df, SampleFilter(**where)).to_dict("records")
    assert math.isnan(row["reward_mean"]) and math.isnan(row["reward_std"])
    assert (row["n_rewards"], row["reward_min"], row["reward_max"]) == (2, 3.0, 1e120)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (low, high)
        for low in (None, -math.inf, 1.0, 2.0, 3.0)
        for high in (math.inf, 3.0, 1.0, None)
        if low is None or high is None or low <= high
    ],
)
@pytest.mark.parametrize("key", [None, "score"])
def test_a1_nan_and_none_meet_no_bound(store_url: str, low: float | None, high: float | None, key: str | None) -> None:
    rewards = [reward if key is None else {key: reward} for reward in REWARDS]
    record(store_url, *[Sample(index=i, reward=reward) for i, reward in enumerate(rewards)])

    def meets(reward: float | None) -> bool:
        bounds = -math.inf if low is None else low, math.inf if high is None else high
        return reward is not None and bounds[0] <= reward <= bounds[1]

    everything = low is None and high is None
    expected = [i for i, reward in enumerate(REWARDS) if everything or meets(reward)]
    assert found(store_url, reward_key=key, reward_min=low, reward_max=high) == expected
    frame = ask(store_url, samples_df, SampleFilter(reward_key=key, reward_min=low, reward_max=high))
    assert list(frame["index"]) == expected
    numbers = [None if REWARDS[i] != REWARDS[i] else REWARDS[i] for i in expected]
    assert plain(frame["reward"]) == numbers


@pytest.mark.parametrize("key", [None, "score"])
def test_a1_nan_is_left_out_of_means_and_counted_apart(store_url: str, key: str | None) -> None:
    rewards = [1.0, math.nan, 3.0, None]
    record(
        store_url,
        *[Sample(reward=r if key is None else {key: r, "x": 9}, weight_versions=["7"]) for r in rewards],
    )
    where = SampleFilter(reward_key=key)
    for frame in (ask(store_url, weight_versions_df, where), ask(store_url, groups_df, where)):
        (row,) = frame.to_dict("records")
        counts = [row[name] for name in ("n_samples", "n_rewards", "n_none", "n_nan")]
        assert counts == [4, 2, 1, 1]
        assert (row["reward_mean"], row["reward_min"], row["reward_max"]) == (2.0, 1.0, 3.0)
        assert row["reward_std"] == pytest.approx(math.sqrt(2.0))


def test_a1_infinite_rewards_are_numbers(store_url: str) -> None:
    groups = {"1": [1.0, math.inf], "2": [-math.inf, 2.0], "3": [math.inf, -math.inf], "4": [1e200, 1.0]}
    record(store_url, *[Sample(reward=r, weight_versions=[v]) for v, rs in groups.items() for r in rs])
    frame = ask(store_url, weight_versions_df)
    means = list(frame["reward_mean"])
    assert means[:2] == [math.inf, -math.inf]
    assert all(map(math.isnan, (*means[2:], *frame["reward_std"])))
    assert list(frame["reward_max"]) == [math.inf, 2.0, math.inf, 1e200]


def test_a1_spreads_are_exact_where_the_mean_is_large(store_url: str) -> None:
    rewards = [1e9 + i % 3 for i in range(300)]
    record(store_url, *[Sample(reward=r, weight_versions=["1"]) for r in rewards])
    (std,) = ask(store_url, weight_versions_df)["reward_std"]
    assert std == pytest.approx(float(np.std(rewards, ddof=1)), rel=1e-9)


def test_a3_a_poisoned_row_does_not_spoil_questions_about_others(store_url: str) -> None:
    poisoned = Sample(index=0, reward={"score": math.nan}, metadata={"a": [math.nan, 1.0], "b": {"c": -math.inf}})
    clean = Sample(index=1, reward={"score": 1.0}, metadata={"a": "ok"})
    record(store_url, poisoned, clean)
    where = SampleFilter(reward_key="score", reward_min=0)
    assert list(ask(store_url, samples_df, where)["index"]) == [1]
    assert list(ask(store_url, samples_df, SampleFilter(metadata={"a": "ok"}))["index"]) == [1]
    frame = ask(store_url, samples_df, columns=["metadata.a", "metadata.b", "reward.score"])
    assert plain(frame["metadata.a"]) == ['["nan",1.0]', "ok"]
    assert plain(frame["metadata.b"]) == ['{"c":"-inf"}', None]
    assert plain(frame["reward.score"]) == [None, 1.0]


UNCLEAN = ["ok\x00tail", "half \ud83d emoji", "\ufeffbom", "a\u2028b\r\n=c"]


@pytest.mark.parametrize("text", UNCLEAN, ids=repr)
def test_a4_search_sees_what_follows_an_odd_character(store_url: str, text: str) -> None:
    chat = [{"role": "user", "content": [{"type": "text", "text": f"{text} 2+2?"}]}]
    samples = [
        Sample(index=0, response=f"{text} needle"),
        Sample(index=1, prompt=f"{text} needle"),
        Sample(index=2, prompt=[{"role": "user", "content": f"{text} needle"}]),
        Sample(index=3, prompt=chat, response="hay"),
    ]
    record(store_url, *samples)
    assert found(store_url, text="needle") == [0, 1, 2]
    assert found(store_url, text=text) == [0, 1, 2, 3]
    assert found(store_url, text="2+2?") == [3]
    assert list(ask(store_url, samples_df, SampleFilter(text="needle"))["index"]) == [0, 1, 2]
    frame = ask(store_url, samples_df, columns=["response", "prompt", "label"])
    assert frame["response"][0].endswith("needle")
    assert frame["prompt"][1].endswith("needle")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('say "hi"\\', [0]),
        ("line\nbreak", [0]),
        ("nbreak", []),  # the n of an escape
        ('":"', []),
        ("content", []),
        ("tool_calls", []),
        ("true", []),
        ("f(x)", [1]),
        ("ß", [2]),
        ("SS", []),
        ("%", []),
        ("long tail", [3]),
        ("in a tuple", [4]),
        ("png", []),
    ],
)
def test_a4_texts_of_chat_messages_are_searched_as_they_are_written(
    store_url: str, text: str, expected: list[int]
) -> None:
    from PIL import Image

    prompts: list[Any] = [
        [{"role": "user", "content": 'say "hi"\\\nline\nbreak'}],
        [{"role": "assistant", "tool_calls": [{"name": "f(x)", "strict": True}]}],
        [{"role": "user", "content": "Maß"}],
        [{"role": "user", "content": "x" * 70_000 + "long tail"}],
        ({"role": "user", "content": ("in a tuple", Image.new("RGB", (2, 2)))},),
    ]
    record(store_url, *[Sample(index=i, prompt=prompt) for i, prompt in enumerate(prompts)])
    assert found(store_url, text=text) == expected


def test_a12_only_numbers_enter_a_mean_whatever_their_type(store_url: str) -> None:
    rewards: list[Any] = [1, 1.0, True, np.float32(1), "1.0", "correct"]
    record(store_url, *[Sample(reward=reward, weight_versions=["1"]) for reward in rewards])
    frame = ask(store_url, samples_df, columns=["reward", "reward_type", "reward_json"])
    assert plain(frame["reward"]) == [1.0, 1.0, 1.0, 1.0, None, None]
    assert list(frame["reward_type"]) == ["int", "float", "bool", "float", "str", "str"]
    assert list(frame["reward_json"]) == ["1", "1.0", "true", "1.0", "1.0", "correct"]
    (row,) = ask(store_url, weight_versions_df).to_dict("records")
    assert [row[name] for name in ("reward_mean", "n_rewards", "n_samples", "n_none", "n_nan")] == [1.0, 4, 6, 0, 0]
