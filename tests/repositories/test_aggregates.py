"""Aggregates say what the samples say: counted once when recorded, merged when asked (cases A1, A12, D1, E1)."""

from __future__ import annotations

import math
from dataclasses import astuple
from itertools import count
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Run, Sample, SampleFilter
from slime_store.dataframes import weight_versions_df
from slime_store.mapping.aggregates import ATTRIBUTIONS
from slime_store.store.questions import asking
from slime_store.testing.contract.opening import run_of
from tests.repositories.direct import COLUMNS, VIEW, Answer, by_weight_version, same, told_version
from tests.services.tables import counts, rows, value

Status = Sample.Status
NUMBERS = count()
PER_EXAMPLE = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


def summaries(run: Run, attribution: Any = "last", **where: Any) -> list[Any]:
    """Rows of the data frame, which reads the aggregates; what is missing is None."""
    frame = weight_versions_df(run, SampleFilter(**where), attribute=attribution)
    return [
        SimpleNamespace(**{name: None if pd.isna(item) else item for name, item in row.items()})
        for row in frame.to_dict("records")
    ]


def merged(run: Run, **which: Any) -> Answer:
    found = summaries(run, **which)
    keys = [(each.run, each.session, each.kind, each.weight_version) for each in found]
    assert len(keys) == len(set(keys))
    return {key: tuple(getattr(s, name) for name in COLUMNS[4:]) for key, s in zip(keys, found, strict=True)}


def viewed(url: str, run: str) -> Answer:
    return {row[:4]: row[4:] for row in rows(url, f"{VIEW} WHERE run = '{run}'")}


def check(url: str, run: Run) -> None:
    for attribution in ATTRIBUTIONS:
        same(merged(run, attribution=attribution), by_weight_version(run, attribution))
    same(viewed(url, run.name), by_weight_version(run, "last"))


REWARDS = (
    st.sampled_from([0.0, 1.0, 0, 1, True, None, math.nan, "1.0", 0.1, -1.5, {"score": 1.0}, [1.0]])
    | st.floats(-1e6, 1e6)
    | st.sampled_from([math.inf, -math.inf, 1e100, -1e100, 1e101, -1e200, 1.7976931348623157e308, 5e-324, 1e-170])
)
SAMPLES = st.builds(
    Sample,
    reward=REWARDS,
    weight_versions=st.lists(st.sampled_from("123"), max_size=4),
    status=st.sampled_from([Status.COMPLETED, Status.TRUNCATED, Status.ABORTED]),
    response_length=st.integers(0, 100) | st.just(2**62),
)
GROUPS = st.lists(st.lists(SAMPLES, min_size=1, max_size=4), max_size=4)
RECORDS = st.tuples(st.sampled_from(["new_attempt", "replace", "eval", "delete"]), st.integers(0, 3), GROUPS)


@settings(suppress_health_check=PER_EXAMPLE)
@given(sessions=st.lists(st.lists(RECORDS, max_size=6), min_size=1, max_size=2))
def test_aggregates_and_view_are_what_the_loaded_samples_give(
    store_url: str, sessions: list[list[tuple[str, int, Any]]]
) -> None:
    name = f"run {next(NUMBERS)}"  # one store for all examples, a run for each
    for records in sessions:
        with run_of(store_url, name) as run:
            for how, rollout_id, groups in records:
                if how == "delete":
                    if rollout_id in [info.rollout_id for info in run.rollouts("train")]:
                        run.delete_rollout(rollout_id)
                elif how == "eval":
                    told = told_version(rollout_id)
                    data = {"a": {"samples": [s for group in groups for s in group]}}
                    run.record_eval(rollout_id, data, weight_version=told)
                else:
                    run.record_train(rollout_id, groups, on_conflict=how)
            check(store_url, run)
    with run_of(store_url, name) as run:
        for info in run.rollouts(attempts=True):
            run.delete_rollout(info.rollout_id, kind=info.kind, attempt=info.attempt)
    assert value(store_url, "SELECT count(*) FROM rollout_weight_versions") == 0


def test_a1_nan_and_none_are_left_out_of_the_mean_and_counted_apart(store_url: str) -> None:
    rewards = [1.0, math.nan, 3.0, None, "5", {"score": 7.0}]
    with run_of(store_url) as run:
        run.record_train(0, [[Sample(reward=r, weight_versions=["7"]) for r in rewards]])
        (answer,) = summaries(run)
        check(store_url, run)
    assert (answer.n_samples, answer.n_rewards, answer.n_none, answer.n_nan) == (6, 2, 1, 1)
    assert (answer.reward_mean, answer.reward_std, answer.reward_min, answer.reward_max) == (2.0, 2**0.5, 1.0, 3.0)


def test_a12_ints_and_bools_count_as_numbers_and_texts_do_not(store_url: str) -> None:
    import numpy as np

    with run_of(store_url) as run:
        run.record_train(0, [[Sample(reward=r) for r in (1, 1.0, True, np.float32(1), "1.0", "correct")]])  # type: ignore[arg-type]
        (answer,) = summaries(run)
    assert (answer.n_rewards, answer.reward_mean, answer.n_none, answer.weight_version) == (4, 1.0, 0, None)
    assert rows(store_url, "SELECT n_rewards, reward_mean FROM v_rewards_by_weight_version") == [(4, 1.0)]


def test_e1_a_sample_counts_once_for_its_last_its_first_or_each_of_its_versions(store_url: str) -> None:
    lists = [["3"], ["13"], ["3", "3", "4"], ["30", "4"], []]
    with run_of(store_url) as run:
        run.record_train(0, [[Sample(reward=float(i), weight_versions=each) for i, each in enumerate(lists, 1)]])
        found = {
            attribution: {
                s.weight_version: (s.n_samples, s.reward_mean) for s in summaries(run, attribution=attribution)
            }
            for attribution in ATTRIBUTIONS
        }
    alone = {"13": (1, 2.0), None: (1, 5.0)}
    assert found["each"] == {"3": (2, 2.0), "4": (2, 3.5), "30": (1, 4.0), **alone}
    assert found["last"] == {"3": (1, 1.0), "4": (2, 3.5), **alone}
    assert found["first"] == {"3": (2, 2.0), "30": (1, 4.0), **alone}
    view = "SELECT weight_version, n_samples, reward_mean FROM v_rewards_by_weight_version"
    assert {label: (n, mean) for label, n, mean in rows(store_url, view)} == found["last"]


def test_versions_of_two_sessions_are_apart_and_in_order_of_first_use(store_url: str) -> None:
    for session in (1, 2):
        with run_of(store_url) as run:
            for rollout_id, label in enumerate(["10", "9"]):
                sample = Sample(reward=float(session), weight_versions=[label])
                run.record_train(10 * session + rollout_id, [[sample], [Sample()]])
    with run_of(store_url) as run:
        found = [(s.session, s.weight_version, s.ordinal, s.first_rollout_id) for s in summaries(run)]
        only = [s.n_samples for s in summaries(run, rollout_ids=range(11, 21))]
        assert summaries(run, rollout_ids=[]) == summaries(run, kind="eval") == []
    known = [(1, "10", 1, 10), (1, "9", 2, 11), (2, "10", 3, 20), (2, "9", 4, 21)]
    assert found == [*known, (1, None, None, 10), (2, None, None, 20)]
    assert only == [1, 1, 1, 1]


def test_only_the_newest_attempt_counts_unless_one_is_asked_for(store_url: str) -> None:
    with run_of(store_url) as run:
        for reward in (1.0, 0.0):
            run.record_train(0, [[Sample(reward=reward, weight_versions=["1"])]])
        assert [s.reward_mean for s in summaries(run)] == [0.0]
        assert [s.reward_mean for s in summaries(run, attempt=1)] == [1.0]
        run.delete_rollout(0, attempt=2)
        assert [s.reward_mean for s in summaries(run)] == [1.0]
    assert counts(store_url)["rollout_weight_versions"] == len(ATTRIBUTIONS)


def test_what_single_rollouts_come_to_can_be_asked_for(store_url: str) -> None:
    with run_of(store_url) as run:
        for rollout_id in range(3):
            samples = [Sample(reward=float(i), weight_versions=["1"] * (i > 0)) for i in range(rollout_id)]
            run.record_train(rollout_id, [samples])
        pks = [pk for (pk,) in rows(store_url, "SELECT id FROM rollouts ORDER BY id")]
        with asking(run, None) as questions:
            sums = [astuple(each) for each in questions.versions.sums(pks, "each")]
    version = value(store_url, "SELECT id FROM weight_versions")
    zero, one = (1, 1, 0, 0, 0.0, 0.0, 0.0, 0.0, 0, 1, 0.0), (1, 1, 0, 0, 1.0, 0.0, 1.0, 1.0, 0, 1, 0.0)
    assert sums == [(*zero, pks[1], None), (*zero, pks[2], None), (*one, pks[2], version)]


def test_journalled_groups_count_nowhere(store_url: str) -> None:
    with run_of(store_url) as run:
        journal = run.recovery.journal()
        journal.put(0, [Sample(reward=1.0, weight_versions=["1"])])
        journal.flush()
        assert summaries(run) == []
        assert counts(store_url)["rollouts"] == 1
        assert counts(store_url)["rollout_weight_versions"] == 0
        run.record_train(0, [[Sample(reward=0.0, weight_versions=["1"])]])
        journal.close()
        check(store_url, run)


@pytest.mark.parametrize(
    ("rewards", "mean", "std"),
    [
        ([1.0, math.inf], math.inf, None),
        ([-math.inf, 2.0], -math.inf, None),
        ([math.inf, -math.inf], None, None),
        ([1e200, 1.0], None, None),
        ([1e200, -math.inf], -math.inf, None),
        ([5e-324, 1e-170], 0.0, 0.0),
        ([0.25], 0.25, None),
        ([0.1] * 7, 0.1, 0.0),
    ],
)
def test_what_no_double_can_sum_is_no_error_and_no_wrong_number(
    store_url: str, rewards: list[float], mean: float | None, std: float | None
) -> None:
    view = "SELECT reward_mean, reward_std, reward_min, reward_max FROM v_rewards_by_weight_version"
    with run_of(store_url) as run:
        for rollout_id, reward in enumerate(rewards):  # merged from several rollouts
            run.record_train(rollout_id, [[Sample(reward=reward, weight_versions=["1"])]])
        (answer,) = summaries(run)
        assert (answer.reward_mean, answer.reward_std) == (
            pytest.approx(mean, abs=1e-15),
            pytest.approx(std, abs=1e-15),
        )
        (found,) = rows(store_url, view)
        assert found == (*map(pytest.approx, (answer.reward_mean, answer.reward_std)), min(rewards), max(rewards))
        run.record_train(0, [[Sample(reward=reward, weight_versions=["1"]) for reward in rewards]])
        for rollout_id in range(1, len(rewards)):
            run.delete_rollout(rollout_id)
        (answer,) = summaries(run)
        assert (answer.reward_mean, answer.reward_std) == (
            pytest.approx(mean, abs=1e-15),
            pytest.approx(std, abs=1e-15),
        )


def test_metrics_are_numbers_where_they_are_numbers(store_url: str) -> None:
    import numpy as np
    import torch

    metrics = {"a": torch.tensor(1.0), "b": np.float32(2), "c": [1, 2], "d": "x", "e": True, "f": math.nan}
    metrics |= {"g": 2**70, "h": {"x": {"y": -0.5}}, "i": math.inf, "j": None, "k": np.float64(0.1), "l": 10**400}
    with run_of(store_url) as run:
        run.record_train(0, RolloutFnTrainOutput([], {"old": 1}))
        run.record_train(0, RolloutFnTrainOutput([], metrics))
        run.record_eval(0, RolloutFnEvalOutput({}, {"acc": 0.25}))
        run.record_train(1, [])
    query = "SELECT kind, rollout_id, metric, depth, value FROM v_metrics"
    assert sorted(rows(store_url, query)) == [
        ("eval", 0, "acc", 1, 0.25),
        ("train", 0, '["h","x","y"]', 3, -0.5),
        ("train", 0, "a", 1, 1.0),
        ("train", 0, "b", 1, 2.0),
        ("train", 0, "e", 1, 1.0),
        ("train", 0, "f", 1, None),
        ("train", 0, "g", 1, 2.0**70),
        ("train", 0, "i", 1, math.inf),
        ("train", 0, "k", 1, 0.1),
    ]
