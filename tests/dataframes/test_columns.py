"""What `columns=` takes, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slime_store import SampleFilter
from slime_store.dataframes import eval_summary_df, groups_df, metrics_df, rollouts_df, samples_df, weight_versions_df
from slime_store.testing import make_eval_output, make_train_output
from slime_store.testing.contract.opening import opened, run_of


@pytest.fixture
def run(sqlite_url: str) -> Any:
    with run_of(sqlite_url) as run:
        run.record_train(0, make_train_output(2, 4))
        run.record_eval(0, make_eval_output(n_samples_per_prompt=4))
    with opened(sqlite_url, read_only=True) as store:
        yield store.run("contract", create=False)


def test_columns_come_in_the_order_that_is_asked_for(run: Any) -> None:
    names = ["response", "reward", "run", "metadata.source", "index"]
    assert list(samples_df(run, columns=names).columns) == names
    assert list(samples_df(run, columns=iter(names)).columns) == names
    assert list(weight_versions_df(run, columns=["reward_mean", "kind"]).columns) == ["reward_mean", "kind"]
    assert samples_df(run, columns=[]).shape == (len(samples_df(run)), 0)


@pytest.mark.parametrize(
    ("question", "columns", "error", "message"),
    [
        (samples_df, ["rewrad"], ValueError, "samples_df has no column 'rewrad'; it has .*reward"),
        (samples_df, ["reward", "reward"], ValueError, "names one twice"),
        (samples_df, "reward", TypeError, r"e\.g\. \['reward'\]"),
        (samples_df, [("tokens", "x")], ValueError, "a path begins with 'metadata', 'reward'"),
        (samples_df, [("reward",)], ValueError, "is no column"),
        (samples_df, [5], ValueError, "5 is no column"),
        (rollouts_df, ["metadata.x"], ValueError, "no column 'metadata.x'"),
        (weight_versions_df, ["reward.x"], ValueError, "no column"),
        (metrics_df, ["loss"], ValueError, "no column 'loss'"),
    ],
)
def test_what_is_no_column_is_refused_with_what_is_near(
    run: Any, question: Any, columns: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        question(run, columns=columns)


def test_pass_at_k_is_a_column_for_each_k_that_is_asked_for(run: Any) -> None:
    for question in (groups_df, eval_summary_df):
        names = [name for name in question(run, k=[3, 1]).columns if name.startswith("pass_at_")]
        assert names == ["pass_at_3", "pass_at_1"]
        assert list(question(run, columns=["pass_at_2"]).columns) == ["pass_at_2"]
        assert list(question(run, columns=iter(["run", "pass_at_2"])).columns) == ["run", "pass_at_2"]
        assert "pass_at_3" in question(run, k=iter([np.int64(3)]))
        assert question(run, k=[10**12])["pass_at_1000000000000"].isna().all()
        with pytest.raises(ValueError, match="whole numbers from 1"):
            question(run, k=[0])


def test_numbers_of_rows_may_be_of_any_integer_type_and_size(run: Any) -> None:
    everything = samples_df(run)
    for huge in (2**63, 2**70, np.int64(2**62)):
        assert len(samples_df(run, limit=huge)) == len(everything)
        assert samples_df(run, SampleFilter(status="completed"), offset=huge).empty
    assert len(samples_df(run, limit=np.int64(2), offset=np.int32(1))) == 2


def test_rollout_ids_of_a_range_with_any_step(run: Any) -> None:
    assert len(samples_df(run, SampleFilter(rollout_ids=range(0, 2**62, 2**62)))) == len(samples_df(run))
    assert len(samples_df(run, SampleFilter(rollout_ids=range(0, 5, 2**70)))) == len(samples_df(run))
    assert samples_df(run, SampleFilter(rollout_ids=range(1, 2, 2**70))).empty


@pytest.mark.parametrize(
    ("question", "options", "message"),
    [
        (samples_df, {"limit": -1}, "limit is a whole number that is at least 0"),
        (samples_df, {"offset": -1}, "offset is a whole number that is at least 0"),
        (samples_df, {"limit": 1.5}, "limit is a whole number"),
        (samples_df, {"limit": "3"}, "limit is a whole number"),
        (samples_df, {"offset": None}, "offset is a whole number"),
        (eval_summary_df, {"threshold": float("nan")}, "threshold is a number"),
        (groups_df, {"threshold": float("nan")}, "threshold is a number"),
        (groups_df, {"k": [1.5]}, "whole numbers from 1"),
        (groups_df, {"k": [True]}, "whole numbers from 1"),
        (weight_versions_df, {"by": "run"}, "by is 'session' or 'label'"),
        (weight_versions_df, {"attribute": "all"}, "attribute is 'last'"),
        (metrics_df, {"layout": "tall"}, "layout is 'wide' or 'long'"),
        (eval_summary_df, {"confidence": 95}, "between 0 and 1"),
    ],
)
def test_a_choice_that_makes_no_sense_is_refused(run: Any, question: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        question(run, **options)


def test_a_source_and_a_filter_are_what_they_should_be(run: Any) -> None:
    with pytest.raises(TypeError, match="expected a Run or a SampleStore, not str"):
        samples_df("runs.db")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="where is a SampleFilter"):
        samples_df(run, {"kind": "train"})  # type: ignore[arg-type]
