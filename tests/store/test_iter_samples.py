"""Going through samples: every condition of a filter, page by page, while others write."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from slime_store import Sample, SampleFilter
from slime_store.dataframes import rollouts_df, samples_df
from slime_store.errors import UnsupportedValueError
from slime_store.mapping.metadata import metadata_matches
from slime_store.store import Run
from slime_store.testing import assert_same, make_train_output
from slime_store.testing.contract.opening import opened, run_of
from tests.services.tables import value

_Status = Sample.Status
CHAT = [{"role": "user", "content": "2+2?"}]


def _train(first: int) -> list[list[Sample]]:
    """Six samples, two groups."""
    return [
        [
            Sample(0, first, reward=1.0, weight_versions=["3"], prompt="p", response='one "100% _ok_\\"\n'),
            Sample(0, first + 1, reward=math.nan, weight_versions=["13"], prompt="p", metadata={"task": "math"}),
            Sample(0, first + 2, reward=0.25, weight_versions=["3", "3", "4"], status=_Status.TRUNCATED, prompt=CHAT),
        ],
        [
            Sample(1, first + 3, reward=None, status=_Status.ABORTED, metadata={"task": (1, 2), "n": True}),
            Sample(1, first + 4, reward={"a.b": 2, "a": {"b": -1.5}}, remove_sample=True, metadata={"n": 1}),
            Sample(None, first + 5, reward=-1, metadata={"task": 7, "n": 1.0, "bad": math.inf}, response="Ok"),
        ],
    ]


Place = tuple[str, int, int]  # kind, rollout id, attempt


@pytest.fixture
def recorded(store_url: str) -> Iterator[tuple[Run, list[tuple[Place, Sample]]]]:
    """A run, and what is in it in the order of reading: train before eval, by rollout id, by attempt."""
    data = {
        "math": {"samples": [Sample(index=90, reward=1.0), Sample(index=91, prompt="p", reward=0.0)]},
        "code": {"samples": [Sample(index=92, response="ok", weight_versions=["4"])]},
    }
    with run_of(store_url) as run:
        everything: list[tuple[Place, Sample]] = []
        for rollout_id, attempt, first in ((0, 1, 0), (2, 1, 10), (2, 2, 20), (5, 1, 30)):
            groups = _train(first)
            run.record_train(rollout_id, groups)
            everything += [(("train", rollout_id, attempt), sample) for group in groups for sample in group]
        run.record_eval(2, data)
        everything += [(("eval", 2, 1), sample) for dataset in data.values() for sample in dataset["samples"]]
        yield run, everything


def _number(reward: Any, *path: str) -> float:
    for key in path:
        reward = reward.get(key) if isinstance(reward, dict) else None
    return reward if isinstance(reward, (int, float)) else math.nan


Test = Callable[[str, int, Sample], bool]

CONDITIONS: dict[str, tuple[dict[str, Any], Test]] = {
    "nothing": ({}, lambda kind, number, s: True),
    "train": ({"kind": "train"}, lambda kind, number, s: kind == "train"),
    "eval": ({"kind": "eval"}, lambda kind, number, s: kind == "eval"),
    "an id": ({"rollout_ids": 2}, lambda kind, number, s: number == 2),
    "ids": ({"rollout_ids": [5, 0, 9]}, lambda kind, number, s: number in (0, 5)),
    "many ids": ({"rollout_ids": range(0, 900, 5)}, lambda kind, number, s: number in (0, 5)),
    "many scattered ids": (
        {"rollout_ids": [n * n + 1 for n in range(400)]},
        lambda kind, number, s: number in (2, 5),
    ),
    "a range of all": (
        {"rollout_ids": range(-(2**63), 2**63 - 1, 5)},
        lambda kind, number, s: (number + 2**63) % 5 == 0,
    ),
    "a range with a step of more than 64 bits": (
        {"rollout_ids": range(5 - 2**63, 2**63 - 1, 2**63)},
        lambda kind, number, s: number == 5,
    ),
    "no ids": ({"rollout_ids": []}, lambda kind, number, s: False),
    "an empty range": ({"rollout_ids": range(3, 3)}, lambda kind, number, s: False),
    "from an id on": ({"rollout_ids": "2:"}, lambda kind, number, s: number >= 2),
    "up to an id": ({"rollout_ids": ":2"}, lambda kind, number, s: number < 2),
    "every third id": ({"rollout_ids": range(5, -1, -3)}, lambda kind, number, s: number in (2, 5)),
    "a dataset": ({"dataset": "code"}, lambda kind, number, s: s.index == 92),
    "another dataset": ({"dataset": "cod"}, lambda kind, number, s: False),
    "a status": ({"status": "truncated"}, lambda kind, number, s: s.status is _Status.TRUNCATED),
    "statuses": (
        {"status": [_Status.ABORTED, "truncated"]},
        lambda kind, number, s: s.status in (_Status.ABORTED, _Status.TRUNCATED),
    ),
    "no status": ({"status": []}, lambda kind, number, s: False),
    "a version": ({"weight_version": "3"}, lambda kind, number, s: "3" in s.weight_versions),
    "a version as number": ({"weight_version": 4}, lambda kind, number, s: "4" in s.weight_versions),
    "no such version": ({"weight_version": "1"}, lambda kind, number, s: False),
    "reward at least": ({"reward_min": 0.25}, lambda kind, number, s: _number(s.reward) >= 0.25),
    "reward at most": ({"reward_max": 0.25}, lambda kind, number, s: _number(s.reward) <= 0.25),
    "reward between": ({"reward_min": 0, "reward_max": 0.5}, lambda kind, number, s: 0 <= _number(s.reward) <= 0.5),
    "a key": ({"reward_key": "a.b", "reward_min": 1}, lambda kind, number, s: _number(s.reward, "a.b") >= 1),
    "a path": ({"reward_key": ["a", "b"], "reward_max": 0}, lambda kind, number, s: _number(s.reward, "a", "b") <= 0),
    "a key, no bound": ({"reward_key": "a.b"}, lambda kind, number, s: True),
    "a group": ({"group_index": 1}, lambda kind, number, s: s.group_index == 1),
    "metadata": ({"metadata": {"task": "math"}}, lambda kind, number, s: s.metadata.get("task") == "math"),
    "metadata as a number": ({"metadata": {"task": 7}}, lambda kind, number, s: s.metadata.get("task") == 7),
    "metadata as a tuple": (
        {"metadata": {"task": (1, 2)}},
        lambda kind, number, s: s.metadata.get("task") == (1, 2),
    ),
    "one of several": (
        {"metadata": {"task": {"math", 7}}},
        lambda kind, number, s: s.metadata.get("task") in ("math", 7),
    ),
    "one, not True": ({"metadata": {"n": 1}}, lambda kind, number, s: s.metadata.get("n") in (1,) and s.index % 10 > 3),
    "metadata, two keys": (
        {"metadata": {"task": 7, "bad": math.inf}},
        lambda kind, number, s: s.metadata.get("bad") == math.inf,
    ),
    "metadata, no such key": ({"metadata": {"none": None}}, lambda kind, number, s: False),
    "text": ({"text": 'one "100% _ok_\\"\n'}, lambda kind, number, s: s.response.startswith("one")),
    "text in its case": ({"text": "ok"}, lambda kind, number, s: "ok" in s.response),
    "text that only prompts have": ({"text": "2+2"}, lambda kind, number, s: s.prompt == CHAT),
    "text of a role": ({"text": "user"}, lambda kind, number, s: s.prompt == CHAT),
    "text that is a key": ({"text": "content"}, lambda kind, number, s: False),
    "a prompt": ({"prompt": "p"}, lambda kind, number, s: s.prompt == "p"),
    "a chat": ({"prompt": CHAT}, lambda kind, number, s: s.prompt == CHAT),
    "no such prompt": ({"prompt": "P"}, lambda kind, number, s: False),
    "removed": ({"removed": True}, lambda kind, number, s: s.remove_sample),
    "not removed": ({"removed": False}, lambda kind, number, s: not s.remove_sample),
    "several conditions": (
        {"kind": "train", "rollout_ids": [0, 2], "weight_version": "3", "reward_min": 0.5, "prompt": "p"},
        lambda kind, number, s: kind == "train" and number < 5 and s.response.startswith("one"),
    ),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_filter_finds_what_it_says_whatever_the_page_size(recorded: Any, condition: str) -> None:
    run, everything = recorded
    where, test = CONDITIONS[condition]
    newest = [(place, sample) for place, sample in everything if place != ("train", 2, 1)]
    expected = [sample for (kind, number, _), sample in newest if test(kind, number, sample)]
    for batch_size in (1, 2, 256):
        assert_same(list(run.iter_samples(SampleFilter(**where), batch_size=batch_size, sample_type=Sample)), expected)
    first = [sample for (kind, number, n), sample in everything if n == 1 and test(kind, number, sample)]
    assert_same(list(run.iter_samples(SampleFilter(attempt=1, **where), batch_size=1, sample_type=Sample)), first)


def test_no_filter_finds_the_newest_attempts_in_order(recorded: Any) -> None:
    run, everything = recorded
    found = list(run.iter_samples(sample_type=Sample))
    assert_same(found, [sample for place, sample in everything if place != ("train", 2, 1)])


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_page_has_at_least_one_sample(recorded: Any, batch_size: int) -> None:
    run, _ = recorded
    with pytest.raises(ValueError, match="batch_size"):
        run.iter_samples(batch_size=batch_size)


def test_only_the_fields_asked_for_are_set(recorded: Any) -> None:
    run, everything = recorded
    where = SampleFilter(metadata={"task": 7}, rollout_ids=0)
    for fields in (["index"], ["reward", "index"], ["metadata"], [], ["no such field"]):
        (found,) = run.iter_samples(where, fields=fields, sample_type=Sample)
        expected = Sample(**{name: getattr(everything[5][1], name) for name in fields if name in vars(Sample())})
        assert_same(found, expected)


def test_a_prompt_that_cannot_be_stored_is_refused(recorded: Any) -> None:
    run, _ = recorded
    with pytest.raises(UnsupportedValueError, match="prompt"):
        list(run.iter_samples(SampleFilter(prompt=[{"content": object()}])))


def test_pages_hold_no_transaction_open_while_others_write(store_url: str) -> None:
    with run_of(store_url) as run:
        for rollout_id in range(3):
            run.record_train(rollout_id, make_train_output(2, 2, seed=rollout_id))
        pages = run.iter_samples(batch_size=1, sample_type=Sample)
        expected = [sample for group in make_train_output(2, 2, seed=0).samples for sample in group]
        assert_same(next(pages), expected[0])
        run.record_train(0, make_train_output(1, 1, seed=9))  # what was begun stays with the attempt it found
        run.record_train(7, make_train_output(1, 1, seed=9))
        assert_same([next(pages) for _ in range(3)], expected[1:])
        run.delete_rollout(1)
        second = [sample for group in make_train_output(2, 2, seed=2).samples for sample in group]
        assert_same(list(pages), second)


def test_a_loop_that_is_left_early_leaves_nothing_open(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, make_train_output(4, 4))
        for _ in run.iter_samples(batch_size=2):
            break
        run.delete_rollout(0)
    assert value(store_url, "SELECT count(*) FROM samples") == 0
    with opened(store_url, read_only=True) as store:
        assert list(store.run("contract").iter_samples()) == []


def test_metadata_is_compared_alike_by_every_way_to_ask(store_url: str) -> None:
    values: list[Any] = [1, 1.0, True, "a", None, math.nan, [1], (1,), {"a": 1}, {1}, range(2), b"a", 2**70]
    values += [np.int64(1), np.bool_(True), np.str_("a"), np.array([1]), np.array([1, 1]), torch.ones(1), [np.int64(1)]]
    with opened(store_url) as store:
        run = store.run("r")
        run.record_train(0, [[Sample(index=i, metadata={"k": value}) for i, value in enumerate(values)]])
        loaded = run.load_train(0, sample_type=Sample).samples[0]
        for value in [*values, [1, 1], [True], (1, "a"), {"a", 2**70}, np.array([]), torch.ones(2)]:
            where = SampleFilter(metadata={"k": value})
            expected = [sample.index for sample in loaded if metadata_matches(sample.metadata, {"k": value})]
            assert [sample.index for sample in run.iter_samples(where, sample_type=Sample)] == expected, value
            assert samples_df(run, where, columns=["index"])["index"].tolist() == expected, value
            assert rollouts_df(run, where)["rollout_id"].tolist() == ([0] if expected else []), value
        assert [s.index for s in run.iter_samples(SampleFilter(metadata={"k": 1}))] == [0, 1, 13]
        assert [s.index for s in run.iter_samples(SampleFilter(metadata={"k": [1]}))] == [6, 19]
