"""Aggregates are what a naive computation from the samples themselves gives."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slime_store import Sample, SampleFilter
from slime_store.dataframes import eval_compare_df, eval_summary_df, groups_df, samples_df, weight_versions_df
from slime_store.testing.contract.opening import opened

_numbers = itertools.count()
REWARDS = st.one_of(
    st.none(),
    st.sampled_from([0.0, 1.0, -1, True, math.nan, "text"]),
    st.floats(-1e6, 1e6),
    st.fixed_dictionaries({}, optional={"acc": st.sampled_from([0, 1.0, math.nan, None])}),
)
SAMPLES = st.builds(
    Sample,
    prompt=st.sampled_from(["p", "q", "r"]),
    reward=REWARDS,
    status=st.sampled_from([Sample.Status.COMPLETED, Sample.Status.TRUNCATED]),
    response_length=st.integers(0, 9),
    weight_versions=st.lists(st.sampled_from(["1", "2", "11"]), max_size=3),
    metadata=st.sampled_from([{}, {"k": 1}, {"k": True}, {"k": "1"}]),
)
ROLLOUTS = st.lists(st.lists(st.lists(SAMPLES, max_size=4), max_size=3), min_size=1, max_size=3)
WHERES = st.sampled_from(
    [
        {},
        {"status": "truncated"},
        {"reward_min": 0.0},
        {"metadata": {"k": 1}},
        {"weight_version": "1", "weight_version_rule": "last"},
        {"text": "q", "response_length_max": 6},
        {"reward_key": "acc"},
        {"reward_key": "acc", "metadata": {"k": 1}},
    ]
)


def number(reward: Any, key: str | None) -> float:
    if key is not None:
        reward = reward.get(key) if isinstance(reward, dict) else None
    return float(reward) if isinstance(reward, (int, float)) else math.nan


def versions_of(sample: Sample, attribute: str) -> list[str]:
    if not sample.weight_versions:
        return [""]
    if attribute == "each":
        return sorted(set(sample.weight_versions))
    return [sample.weight_versions[0 if attribute == "first" else -1]]


def same(found: Any, expected: Any) -> bool:
    if pd.isna(found) or pd.isna(expected):
        return bool(pd.isna(found) and pd.isna(expected))
    return bool(found == pytest.approx(expected, rel=1e-9, abs=1e-6))


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One store for all examples, each of which has a run of its own."""
    if request.param == "sqlite":
        with opened(f"sqlite:///{tmp_path_factory.mktemp('naive') / 'store.db'}") as store:
            yield store
        return
    server = request.getfixturevalue("postgres_server")
    with server.database() as url, opened(url) as store:
        yield store


@settings(
    max_examples=max(15, settings().max_examples // 2),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rollouts=ROLLOUTS, where=WHERES, attribute=st.sampled_from(["last", "first", "each"]))
def test_weight_versions_and_groups(store: Any, rollouts: Any, where: dict[str, Any], attribute: Any) -> None:
    run = store.run(f"run {next(_numbers)}")
    for rollout_id, groups in enumerate(rollouts):
        run.record_train(rollout_id, groups)
    filter_ = SampleFilter(**where)
    key = where.get("reward_key")
    naive: dict[str, list[Sample]] = {}
    samples = list(run.iter_samples(filter_, sample_type=Sample))
    for sample in samples:
        for version in versions_of(sample, attribute):
            naive.setdefault(version, []).append(sample)
    frame = weight_versions_df(run, filter_, attribute=attribute)
    assert sorted(frame["weight_version"].fillna("")) == sorted(naive)
    for row in frame.to_dict("records"):
        members = naive["" if pd.isna(row["weight_version"]) else row["weight_version"]]
        rewards = pd.Series([number(sample.reward, key) for sample in members], dtype=float)
        assert (row["n_samples"], row["n_rewards"]) == (len(members), rewards.count())
        if key is None:
            assert row["n_none"] == sum(sample.reward is None for sample in members)
            assert row["n_nan"] == sum(isinstance(s.reward, float) and math.isnan(s.reward) for s in members)
        for name, expected in (("mean", rewards.mean()), ("std", rewards.std()), ("min", rewards.min())):
            assert same(row[f"reward_{name}"], expected), name
        assert same(row["response_length_mean"], pd.Series([s.response_length for s in members]).mean())
        assert same(row["truncated_share"], sum(s.status is Sample.Status.TRUNCATED for s in members) / len(members))

    table = samples_df(run, filter_, columns=["rollout_id", "group_position", "reward"])
    rewards = [number(sample.reward, key) for sample in samples]
    assert all(itertools.starmap(same, zip(table["reward"], rewards, strict=True)))
    expected = table.groupby(["rollout_id", "group_position"])["reward"].agg(["count", "mean", "std"])
    groups = groups_df(run, filter_).set_index(["rollout_id", "group_position"]).sort_index()
    assert list(groups.index) == list(expected.index)
    for name, column in (("n_rewards", "count"), ("reward_mean", "mean"), ("reward_std", "std")):
        assert all(itertools.starmap(same, zip(groups[name], expected[column], strict=True)))


@settings(
    max_examples=max(15, settings().max_examples // 2),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(evals=st.lists(st.lists(SAMPLES, max_size=8), min_size=2, max_size=2))
def test_evals_and_their_comparison(store: Any, evals: list[list[Sample]]) -> None:
    run = store.run(f"run {next(_numbers)}")
    for rollout_id, samples in enumerate(evals):
        run.record_eval(rollout_id, {"d": {"samples": samples}})
    means: list[dict[str, float]] = []
    for rollout_id, samples in enumerate(evals):
        rewards: dict[str, list[float]] = {}
        for sample in samples:
            rewards.setdefault(sample.prompt, []).append(number(sample.reward, None))  # type: ignore[arg-type]
        known = {prompt: [r for r in each if r == r] for prompt, each in rewards.items()}
        means.append({prompt: sum(each) / len(each) for prompt, each in known.items() if each})
        summary = eval_summary_df(run, SampleFilter(rollout_ids=rollout_id), k=[1, 2])
        if not samples:
            assert summary.empty
            continue
        (row,) = summary.to_dict("records")
        assert row["n_prompts"] == len(rewards)
        of_prompts = pd.Series(list(means[-1].values()), dtype=float)
        assert same(row["reward_mean"], of_prompts.mean())
        assert same((row["ci_low"] + row["ci_high"]) / 2, of_prompts.mean() if len(of_prompts) > 1 else math.nan)
        pairs = [list(itertools.combinations(each, 2)) for each in known.values() if len(each) > 1]
        by_hand = pd.Series([sum(max(pair) >= 1.0 for pair in each) / len(each) for each in pairs], dtype=float)
        assert same(row["pass_at_2"], by_hand.mean() if len(pairs) * 2 >= len(rewards) else math.nan)
    frame = eval_compare_df(run, 0, 1, columns=["prompt", "before", "after", "delta"])
    both = [prompt for prompt in means[0] if prompt in means[1]]
    assert sorted(frame["prompt"]) == sorted(both)
    for prompt, before, after, delta in frame.itertuples(index=False):
        assert same(before, means[0][prompt])
        assert same(after, means[1][prompt])
        assert same(delta, after - before)
