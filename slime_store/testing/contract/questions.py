# ruff: noqa: D102  (a test's name is its docstring)
"""The contract on questions: which samples a filter finds, and weight versions."""

from __future__ import annotations

import math
from typing import Any

import pytest

from slime_store.testing.compare import assert_same
from slime_store.testing.contract.opening import opened, run_of
from slime_store.testing.factories import make_eval_output, make_train_output
from slime_store.types import Sample, SampleFilter

_TRUNCATED, _ABORTED = Sample.Status.TRUNCATED, Sample.Status.ABORTED
_TRAIN = [
    Sample(0, 0, reward=1.0, weight_versions=["3"], metadata={"task": "math"}, response="one 100% _ok_"),
    Sample(0, 1, reward=math.nan, weight_versions=["13"], metadata={"task": "code"}, prompt="p"),
    Sample(1, 2, reward=0.5, weight_versions=["3", "3", "4"], status=_TRUNCATED),
    Sample(1, 3, reward=None, weight_versions=["30", "4"], status=_ABORTED),
    Sample(2, 4, reward={"score": 2.0, "nest": {"x": 5}}, remove_sample=True, response="nul \x00 tail"),
    Sample(None, 5, reward=-1, metadata={"task": 7, "bad": math.inf}, response="Two 100 ok"),
]

FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 1, 2, 3, 4, 5]),
    ({"kind": "train"}, [0, 1, 2, 3, 4, 5]),
    ({"kind": "eval"}, []),
    ({"rollout_ids": 0}, [0, 1, 2, 3, 4, 5]),
    ({"rollout_ids": [1, 2]}, []),
    ({"rollout_ids": []}, []),
    ({"rollout_ids": "0:1"}, [0, 1, 2, 3, 4, 5]),
    ({"rollout_ids": range(1, 9)}, []),
    ({"attempt": 1}, [0, 1, 2, 3, 4, 5]),
    ({"attempt": 2}, []),
    ({"status": "truncated"}, [2]),
    ({"status": [Sample.Status.ABORTED, "truncated"]}, [2, 3]),
    ({"status": []}, []),
    ({"weight_version": "3"}, [0, 2]),
    ({"weight_version": "4"}, [2, 3]),
    ({"weight_version": "'; drop table samples;--"}, []),
    ({"reward_min": 0.5}, [0, 2]),
    ({"reward_max": 0.5}, [2, 5]),
    ({"reward_min": -1, "reward_max": -1}, [5]),
    ({"reward_min": -math.inf}, [0, 2, 5]),
    ({"reward_min": 1, "reward_key": "score"}, [4]),
    ({"reward_min": 1, "reward_key": ["nest", "x"]}, [4]),
    ({"reward_min": 1, "reward_key": "x"}, []),
    ({"group_index": 1}, [2, 3]),
    ({"metadata": {"task": "math"}}, [0]),
    ({"metadata": {"task": 7}}, [5]),
    ({"metadata": {"task": "7"}}, []),
    ({"metadata": {"task": "math", "other": 1}}, []),
    ({"text": "100% _"}, [0]),
    ({"text": "ok"}, [0, 5]),
    ({"text": "two"}, []),
    ({"text": "tail"}, [4]),
    ({"prompt": "p"}, [1]),
    ({"removed": True}, [4]),
    ({"removed": False}, [0, 1, 2, 3, 5]),
    ({"group_index": 1, "reward_min": 0, "weight_version": "4"}, [2]),
]


class QuestionContract:
    """Filters find exactly the samples they describe, in the order in which they were recorded."""

    @pytest.mark.parametrize(("where", "expected"), FILTERS)
    def test_a_filter_finds_exactly_what_it_describes(
        self, store_url: str, where: dict[str, Any], expected: list[int]
    ) -> None:
        groups = [_TRAIN[:2], _TRAIN[2:4], _TRAIN[4:]]
        with run_of(store_url) as run:
            run.record_train(0, groups)
            found = list(run.iter_samples(SampleFilter(**where), batch_size=2))
        assert [sample.index for sample in found] == expected
        assert_same(found, [_TRAIN[index] for index in expected])

    def test_a_dataset_can_be_asked_for(self, store_url: str) -> None:
        output = make_eval_output({"math": 2, "code": 1})
        with run_of(store_url) as run:
            run.record_eval(0, output)
            assert_same(list(run.iter_samples(SampleFilter(dataset="code"))), output.data["code"]["samples"])
            assert list(run.iter_samples(SampleFilter(dataset="cod"))) == []

    def test_samples_come_in_the_order_of_rollouts_and_of_recording(self, store_url: str) -> None:
        outputs = {rollout_id: make_train_output(seed=rollout_id) for rollout_id in (2, 0, 1)}
        with run_of(store_url) as run:
            for rollout_id, output in outputs.items():
                run.record_train(rollout_id, output)
            found = list(run.iter_samples(batch_size=3))
        assert_same(found, [sample for each in sorted(outputs) for group in outputs[each].samples for sample in group])

    def test_only_the_newest_attempt_is_asked_unless_another_is_named(self, store_url: str) -> None:
        with run_of(store_url) as run:
            run.record_train(0, [[Sample(index=1)], [Sample(index=2)]])
            run.record_train(0, [[Sample(index=3)]])
            assert [sample.index for sample in run.iter_samples()] == [3]
            assert [sample.index for sample in run.iter_samples(SampleFilter(attempt=1))] == [1, 2]

    def test_only_the_fields_asked_for_need_be_read(self, store_url: str) -> None:
        with run_of(store_url) as run:
            run.record_train(0, [_TRAIN])
            found = list(run.iter_samples(fields=["index", "reward", "metadata"]))
        assert_same([sample.reward for sample in found], [sample.reward for sample in _TRAIN])
        assert_same([sample.metadata for sample in found], [sample.metadata for sample in _TRAIN])
        assert [sample.response for sample in found] == [""] * len(_TRAIN)

    def test_weight_versions_are_numbered_by_first_use_across_sessions(self, store_url: str) -> None:
        for labels in (["2", "10"], ["1", "2"]):  # the second process begins at 1 again
            with run_of(store_url) as run:
                for label in labels:
                    run.record_train(int(label), make_train_output(1, 1, weight_version=label))
        with opened(store_url, read_only=True) as store:
            versions = store.run("contract", create=False).weight_versions()
        assert [(each.session, each.label, each.ordinal) for each in versions] == [
            (1, "2", 1),
            (1, "10", 2),
            (2, "1", 3),
            (2, "2", 4),
        ]

    def test_notes_on_a_weight_version_come_back(self, store_url: str) -> None:
        notes = {"checkpoint": "/ckpt/7", "lr": (1e-6, None)}
        with run_of(store_url) as run:
            run.record_weight_version("7", metadata=notes)
            run.record_train(0, make_train_output(1, 1, weight_version="7"))
        with opened(store_url, read_only=True) as store:
            (version,) = store.run("contract", create=False).weight_versions()
        assert (version.label, version.ordinal, version.params) == ("7", 1, None)
        assert_same(version.metadata, notes)
