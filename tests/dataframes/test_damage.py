"""Rows that cannot be shown: an error that names them, or a list of them beside the frame."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from slime_store import RolloutFnTrainOutput, Sample, SampleFilter
from slime_store.dataframes import eval_compare_df, metrics_df, prompts_df, rollouts_df, samples_df, weight_versions_df
from slime_store.errors import BlobCorruptError
from slime_store.testing.contract.opening import opened, run_of


@pytest.fixture
def run(sqlite_url: str) -> Any:
    samples = [Sample(index=i, metadata={"a": i}, reward={"x": i}) for i in range(3)]
    with run_of(sqlite_url) as run:
        for rollout_id in range(2):
            run.record_train(rollout_id, RolloutFnTrainOutput([samples], {"loss": 1.0}))
    with closing(sqlite3.connect(Path(str(make_url(sqlite_url).database)))) as connection:
        where = "WHERE position = 1 AND rollout_pk = (SELECT min(id) FROM rollouts)"
        connection.execute(f"UPDATE sample_documents SET metadata = '{{\"a\":', extra = '[' {where}")
        connection.execute("UPDATE rollouts SET metrics = '{' WHERE rollout_id = 1")
        connection.commit()
    with opened(sqlite_url, read_only=True) as store:
        yield store.run("contract", create=False)


def test_a_damaged_row_is_an_error_that_names_it(run: Any) -> None:
    for columns in (["metadata.a"], ["metadata"]):
        with pytest.raises(
            BlobCorruptError, match=r"run 'contract', train rollout 0, sample 1: metadata.*strict=False"
        ):
            samples_df(run, columns=columns)
    assert len(samples_df(run)) == 6  # scalars are whole


def test_a_damaged_row_is_left_out_and_listed_when_that_is_asked_for(run: Any) -> None:
    frame, problems = samples_df(run, columns=["index", "metadata.a"], strict=False)
    assert list(frame["index"]) == [0, 2, 0, 1, 2]
    assert list(frame["metadata.a"]) == ["0", "2", "0", "1", "2"]
    assert list(frame.index) == list(range(5))
    (problem,) = problems
    assert (problem.kind, problem.rollout_id, problem.position, problem.column) == ("train", 0, 1, "metadata.a")
    whole, none = samples_df(run, strict=False)
    assert (len(whole), none) == (6, [])


def test_a_filter_that_cannot_be_decided_is_a_problem_too(run: Any) -> None:
    where = SampleFilter(metadata={"a": 1})
    for question in (samples_df, weight_versions_df, rollouts_df):
        with pytest.raises(BlobCorruptError, match="sample 1: metadata"):
            question(run, where)
    frame, problems = samples_df(run, where, strict=False)
    assert (list(frame["rollout_id"]), [each.position for each in problems]) == ([1], [1])


def test_damaged_metrics_are_a_problem_of_their_rollout(run: Any) -> None:
    for question in (metrics_df, lambda *args, **options: rollouts_df(*args, columns=["metrics.loss"], **options)):
        with pytest.raises(BlobCorruptError, match="train rollout 1: metrics"):
            question(run)
        frame, problems = question(run, strict=False)
        assert (list(frame["metrics.loss"]), [each.rollout_id for each in problems]) == ([1.0], [1])
    assert len(rollouts_df(run)) == 2


def test_a_damaged_prompt_is_a_problem_like_any_other(sqlite_url: str) -> None:
    chat = [{"role": "user", "content": "2 + 3 ="}]
    with run_of(sqlite_url) as run:
        samples = [Sample(prompt=prompt, reward=1.0) for prompt in ("plain", chat)]
        run.record_train(0, RolloutFnTrainOutput([samples]))
        run.record_eval(0, {"sums": {"samples": samples}})
    with closing(sqlite3.connect(Path(str(make_url(sqlite_url).database)))) as connection:
        connection.execute("UPDATE prompts SET document = '{' WHERE document IS NOT NULL")
        connection.commit()
    with opened(sqlite_url, read_only=True) as store:
        run = store.run("contract", create=False)
        frame, problems = prompts_df(run, columns=["kind", "prompt"], strict=False)
        assert frame.values.tolist() == [["train", "plain"], ["eval", "plain"]]
        assert [(each.kind, each.position, each.column) for each in problems] == [
            ("train", 1, "prompt"),
            ("eval", 1, "prompt"),
        ]
        with pytest.raises(BlobCorruptError, match="sample 1: prompt: a document does not decode"):
            prompts_df(run, columns=["prompt"])
        with pytest.raises(BlobCorruptError, match=r"prompt [0-9a-f]{16}: a document does not decode"):
            eval_compare_df(run, 0, 0, columns=["prompt"])
        assert len(prompts_df(run)) == 4 and len(eval_compare_df(run, 0, 0)) == 2
