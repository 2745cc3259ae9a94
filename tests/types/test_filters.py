"""SampleFilter: what may be written, what it becomes, and what is refused."""

from __future__ import annotations

import dataclasses
import math
import pickle
from enum import Enum
from typing import Any

import numpy as np
import pytest

from slime_store.types import Sample, SampleFilter


class SomeStatus(Enum):
    PAUSED = "paused"


def test_a_filter_without_conditions_has_none() -> None:
    assert set(vars(SampleFilter()).values()) == {None, "any"}
    assert len(vars(SampleFilter())) == len(dataclasses.fields(SampleFilter)) == 18


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"kind": "eval"}, "eval"),
        ({"rollout_ids": 7}, (7,)),
        ({"rollout_ids": np.int64(7)}, (7,)),
        ({"rollout_ids": "7"}, (7,)),
        ({"rollout_ids": "10:20"}, range(10, 20)),
        ({"rollout_ids": " 10: "}, range(10, 2**63 - 1)),
        ({"rollout_ids": ":20"}, range(20)),
        ({"rollout_ids": ":"}, range(2**63 - 1)),
        ({"rollout_ids": range(3, 9, 2)}, range(3, 9, 2)),
        ({"rollout_ids": range(9, 3, -2)}, range(5, 10, 2)),
        ({"rollout_ids": [3, 1, 3]}, (1, 3)),
        ({"rollout_ids": (i for i in (2, 1))}, (1, 2)),
        ({"rollout_ids": np.arange(2)}, (0, 1)),
        ({"rollout_ids": []}, ()),
        ({"attempt": 2}, 2),
        ({"dataset": ""}, ""),
        ({"status": "truncated"}, ("truncated",)),
        ({"status": Sample.Status.FAILED}, ("failed",)),
        ({"status": {"pending"}}, ("pending",)),
        ({"status": ["aborted", Sample.Status.ABORTED, "failed"]}, ("aborted", "failed")),
        ({"status": SomeStatus.PAUSED}, ("paused",)),
        ({"weight_version": "007"}, "007"),
        ({"weight_version": 7}, "7"),
        ({"reward_min": 1}, 1.0),
        ({"reward_max": -math.inf}, -math.inf),
        ({"reward_min": np.float32(0.5)}, 0.5),
        ({"reward_key": ""}, ""),
        ({"reward_key": "math.acc"}, "math.acc"),
        ({"reward_key": ["nest", "x"]}, ("nest", "x")),
        ({"reward_key": ("nest",)}, "nest"),
        ({"group_index": -1}, -1),
        ({"metadata": {"task": [1, None]}}, {"task": [1, None]}),
        ({"text": " "}, " "),
        ({"prompt": [{"role": "user"}]}, [{"role": "user"}]),
        ({"removed": False}, False),
    ],
)
def test_a_condition_is_brought_into_one_form(condition: dict[str, Any], expected: Any) -> None:
    (name,) = condition
    value = getattr(SampleFilter(**condition), name)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"kind": "test"}, "kind is 'train' or 'eval', not 'test'"),
        ({"rollout_ids": "ten"}, r"such as '7' or a range such as '10:20'.*not 'ten'"),
        ({"rollout_ids": ""}, "not ''"),
        ({"rollout_ids": "20:10"}, "'20:10' is an empty range"),
        ({"rollout_ids": "1:2:3"}, "not '1:2:3'"),
        ({"rollout_ids": "-1"}, "not '-1'"),
        ({"rollout_ids": "٣"}, "not '٣'"),
        ({"rollout_ids": True}, "whole number, not True"),
        ({"rollout_ids": 1.0}, "whole number, not 1.0"),
        ({"rollout_ids": [1, "2"]}, "every id in rollout_ids is a whole number, not '2'"),
        ({"rollout_ids": b"1"}, "whole number, not b'1'"),
        ({"attempt": 0}, "attempt counts from 1, not 0"),
        ({"attempt": "newest"}, "attempt is a whole number, not 'newest'"),
        ({"dataset": 3}, "dataset is text, not 3"),
        ({"status": "complete"}, "unknown sample status 'complete'; known are 'pending', 'completed'"),
        ({"status": ["failed", 3]}, "unknown sample status 3"),
        ({"status": 3}, "status is a word"),
        ({"weight_version": 1.5}, "not 1.5"),
        ({"reward_min": math.nan}, "reward_min is a number, not nan"),
        ({"reward_max": "1"}, "reward_max is a number, not '1'"),
        ({"reward_min": 1, "reward_max": 0.5}, "reward_min 1.0 is above reward_max 0.5"),
        ({"reward_key": []}, "reward_key is a key or a path of keys"),
        ({"reward_key": [1]}, "reward_key is a key or a path of keys"),
        ({"group_index": None, "metadata": {1: 2}}, "metadata is a dict from key"),
        ({"metadata": ["task"]}, "metadata is a dict from key"),
        ({"text": ""}, "text is empty"),
        ({"text": b"a"}, "text is text, not b'a'"),
        ({"prompt": 3}, "prompt is text or a list of chat messages, not 3"),
        ({"removed": "yes"}, "removed is True or False, not 'yes'"),
    ],
)
def test_nonsense_is_refused_with_the_reason(condition: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SampleFilter(**condition)


def test_a_filter_is_frozen_but_can_be_varied_compared_and_pickled() -> None:
    where = SampleFilter(kind="train", rollout_ids="10:", status="failed", metadata={"a": 1})
    with pytest.raises(dataclasses.FrozenInstanceError):
        where.kind = "eval"  # type: ignore[misc]
    assert dataclasses.replace(where, kind="eval").kind == "eval"
    assert dataclasses.replace(where) == where == pickle.loads(pickle.dumps(where))


def test_a_filter_does_not_change_with_the_dict_it_was_made_from() -> None:
    metadata = {"a": 1}
    where = SampleFilter(metadata=metadata)
    metadata["b"] = 2
    assert where.metadata == {"a": 1}
