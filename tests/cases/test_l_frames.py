"""Section L of the cases: data frames that hold whatever samples hold."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from slime_store import RolloutFnTrainOutput, Run, Sample, SampleFilter, dataframes
from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from tests.cases.asked import ask, plain, reading, record
from tests.services.tables import rows

WIDE = ["index", "metadata.mixed", "reward.a", "reward", "reward_json", "label", "response", "prompt", "prompt_id"]
FRAMES: dict[str, Callable[..., pd.DataFrame]] = {
    "samples": dataframes.samples_df,
    "samples, chosen": lambda run, where: dataframes.samples_df(run, where, columns=WIDE),
    "samples, the rest": lambda run, where: dataframes.samples_df(
        run, where, columns=["metadata", "first_weight_version", "eval_truncated", "non_generation_time"]
    ),
    "groups": lambda run, where: dataframes.groups_df(run, where),
    "rollouts": lambda run, where: dataframes.rollouts_df(run, where),
    "rollouts, chosen": lambda run, where: dataframes.rollouts_df(
        run, where, columns=["metrics", "metrics.a", "finished_at", "rollout_id"]
    ),
    "weight versions": lambda run, where: dataframes.weight_versions_df(run, where),
    "weight versions, by label": lambda run, where: dataframes.weight_versions_df(
        run, where, by="label", attribute="each"
    ),
    "eval": lambda run, where: dataframes.eval_df(run, where),
    "eval summary": lambda run, where: dataframes.eval_summary_df(run, where),
    "eval compare": lambda run, where: dataframes.eval_compare_df(
        run, 0, 1, dataset="none" if where.rollout_ids == () else None
    ),
    "eval compare, in sum": lambda run, where: dataframes.eval_compare_summary_df(
        run, 0, 1, dataset="none" if where.rollout_ids == () else None
    ),
    "metrics": lambda run, where: dataframes.metrics_df(run, where),
    "metrics, long": lambda run, where: dataframes.metrics_df(run, where, layout="long"),
    "prompts": lambda run, where: dataframes.prompts_df(run, where),
}
NOTHING = SampleFilter(rollout_ids=[])


def _samples() -> list[Sample]:
    rewards: list[Any] = [1.0, None, {"a": 1}, "x", math.nan, [1, 2]]
    mixed: list[Any] = [1, "one", [1], None, {"k": (1, math.inf)}, np.float32(0.5)]
    labels: list[Any] = [42, "a", None, "", ["b"], {"ground_truth": "7"}]
    return [
        Sample(index=i, reward=reward, metadata={"mixed": mixed[i]}, label=labels[i], prompt="p" if i < 3 else [{}])
        for i, reward in enumerate(rewards)
    ]


@pytest.fixture
def mixed(store_url: str) -> Iterator[Run]:
    """A run with something of every kind, and two evals."""
    with run_of(store_url) as run:
        run.record_train(0, RolloutFnTrainOutput([_samples()[:3], _samples()[3:]], {"a": 1, "b": "x"}))
        for rollout_id in range(2):
            data = {"d": {"samples": _samples(), "rewards": [1.0, None, 0.0, 1.0, 1.0, 0.0]}}
            run.record_eval(rollout_id, data | make_eval_output(seed=rollout_id).data, weight_version=str(rollout_id))
    with reading(store_url) as run:
        yield run


def test_l2_raw_objects_are_json_and_numbers_are_numbers(mixed: Run) -> None:
    frame = dataframes.samples_df(mixed, SampleFilter(kind="train"), columns=WIDE)
    assert plain(frame["reward"]) == [1.0, None, None, None, None, None]
    assert plain(frame["reward_json"]) == ["1.0", None, '{"a":1}', "x", "nan", "[1,2]"]
    assert plain(frame["metadata.mixed"]) == ["1", "one", "[1]", None, '{"k":[1,"inf"]}', "0.5"]
    assert plain(frame["label"]) == ["42", "a", None, "", '["b"]', '{"ground_truth":"7"}']
    assert plain(frame["prompt"]) == ["p"] * 3 + ["[{}]"] * 3
    assert plain(frame["reward.a"]) == [None, None, 1.0, None, None, None]


@pytest.mark.parametrize("name", FRAMES)
def test_l2_dtypes_do_not_depend_on_the_rows_and_every_format_takes_the_frame(
    mixed: Run, name: str, tmp_path: Path
) -> None:
    whole = FRAMES[name](mixed, SampleFilter())
    assert len(whole) > 0
    wheres = [NOTHING, SampleFilter(kind="train"), SampleFilter(kind="eval"), SampleFilter(status="pending")]
    for where in [*wheres, SampleFilter(reward_min=1), SampleFilter(metadata={"mixed": None})]:
        part = FRAMES[name](mixed, where)
        pd.testing.assert_series_equal(part.dtypes, whole.dtypes)
        assert type(part.index) is pd.RangeIndex
    assert FRAMES[name](mixed, NOTHING).empty
    for frame in (whole, FRAMES[name](mixed, NOTHING)):
        frame.to_parquet(tmp_path / "frame.parquet")
        again = pd.read_parquet(tmp_path / "frame.parquet")
        assert list(again.columns) == list(frame.columns)
        assert len(again) == len(frame)
        assert len(pd.read_csv(io.StringIO(frame.to_csv()))) == len(frame)
        assert len(pd.read_json(io.StringIO(frame.to_json(orient="records", date_format="iso")))) == len(frame)


def test_l5_csv_and_json_lines_keep_the_number_of_rows(store_url: str) -> None:
    texts = ["a\r\nb", "a\u2028b\u2029", "\"quoted\", 'so'", "=1+1", "nul\x00", "half \ud83d", "\x85\x1c", "", "a\rb"]
    record(store_url, *[Sample(response=text, label=text, metadata={"t": text}, prompt=text) for text in texts])
    frame = ask(store_url, dataframes.samples_df, columns=["response", "label", "metadata.t", "prompt"])
    assert len(frame) == len(texts)
    assert list(frame["response"][:3]) == texts[:3]
    # pandas does not quote a lone carriage return by itself, and reads it as the end of a row
    assert len(pd.read_csv(io.StringIO(frame.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)))) == len(texts)
    assert len(pd.read_csv(io.StringIO(frame[:-1].to_csv(index=False)))) == len(texts) - 1
    lines = frame.to_json(orient="records", lines=True)
    assert len(lines.split("\n")) == len(texts) + 1
    assert [json.loads(line)["response"] for line in lines.split("\n")[:-1]] == list(frame["response"])


METRICS: list[Any] = [
    None,
    {},
    {
        "a": torch.tensor(1.0),
        "b": np.float32(2),
        "c": [1, 2],
        "d": "x",
        "e": True,
        "run": 3,
        "x.y": 4,
        "nest": {"x": 5, "s": "t"},
        "nan": math.nan,
    },
]


def test_l7_metrics_that_are_numbers_are_columns_and_all_are_kept(store_url: str) -> None:
    with run_of(store_url) as run:
        for rollout_id, metrics in enumerate(METRICS):
            run.record_train(rollout_id, RolloutFnTrainOutput([[Sample()]], metrics))
    for rollout_id, metrics in enumerate(METRICS):
        assert_same(loaded_train(store_url, rollout_id).metrics, metrics)
    with reading(store_url) as run:
        frame = dataframes.metrics_df(run)
        expected = {"a": 1.0, "b": 2.0, "e": 1.0, "nan": None, '["nest","x"]': 5.0, "run": 3.0, "x.y": 4.0}
        fixed = ["run", "kind", "rollout_id", "attempt", "session"]
        assert sorted(frame.columns) == sorted([*fixed, *[f"metrics.{name}" for name in expected]])
        for name, value in expected.items():
            assert plain(frame[f"metrics.{name}"]) == [None, None, value]
            assert frame[f"metrics.{name}"].dtype == "float64"
        long = dataframes.metrics_df(run, layout="long")
        numbers = dict(zip(long["metric"], plain(long["value"]), strict=True))
        assert numbers == expected
        assert {name for (name,) in rows(store_url, "SELECT metric FROM v_metrics")} == set(expected)
        assert set(long["rollout_id"]) == {2}
        columns = ["rollout_id", "metrics.e", ("metrics", "nest", "x"), "metrics.none", "metrics"]
        chosen = dataframes.rollouts_df(run, columns=columns)
        assert plain(chosen.iloc[2][:4]) == [2, 1.0, 5.0, None]
        assert plain(chosen["metrics"])[:2] == [None, "{}"]
        whole = json.loads(chosen["metrics"][2])
        assert (whole["c"], whole["d"], whole["b"], whole["nest"]) == ([1, 2], "x", 2.0, {"x": 5, "s": "t"})
        one = dataframes.metrics_df(run, SampleFilter(rollout_ids=0))
        pd.testing.assert_series_equal(one.dtypes, frame.dtypes)  # whatever the rollouts chosen


@pytest.mark.slow
def test_l1_frames_of_thousands_of_scattered_rows(store_url: str) -> None:
    n = 1500  # more rollouts than some builds of SQLite take variables, recorded in falling order
    with run_of(store_url) as run:
        for rollout_id in reversed(range(n)):
            run.record_train(rollout_id, [[make_sample(rollout_id, n_tokens=1, weight_version=str(rollout_id % 1100))]])
    ids = list(range(0, n, 2))
    with reading(store_url) as run:
        where = SampleFilter(rollout_ids=ids, status="completed")
        frame = dataframes.samples_df(run, where, columns=["index", "prompt_id", "rollout_id"])
        assert list(frame["rollout_id"]) == list(frame["index"]) == ids
        page = dataframes.samples_df(run, where, columns=["index"], limit=5, offset=700)
        assert list(page["index"]) == ids[700:705]
        assert len(dataframes.rollouts_df(run, where)) == len(ids)
        assert dataframes.weight_versions_df(run)["n_samples"].sum() == n
        assert len(dataframes.weight_versions_df(run)) == 1100
        assert dataframes.groups_df(run, columns=["prompt_id", "n_samples"])["n_samples"].sum() == n
        assert len(dataframes.prompts_df(run)) == n
        assert len(dataframes.metrics_df(run)) == n


def test_a_store_answers_for_all_of_its_runs(store_url: str) -> None:
    with opened(store_url) as store:
        for name in ("first", "second"):
            store.run(name).record_train(0, make_train_output(2, 2))
            store.run(name).record_eval(0, make_eval_output())
    with opened(store_url, read_only=True) as store:
        for name, question in FRAMES.items():
            if "compare" in name:
                with pytest.raises(TypeError, match="expected a Run"):
                    question(store, SampleFilter())
                continue
            both = question(store, SampleFilter())
            parts = [question(store.run(run, create=False), SampleFilter()) for run in ("first", "second")]
            assert len(both) == sum(map(len, parts)), name
            if "run" in both:
                assert list(both["run"].unique()) == ["first", "second"]
