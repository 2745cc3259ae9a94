"""What of a reward can be asked in numbers, and what gives it back exactly."""

from __future__ import annotations

import math
from collections import UserDict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_store import Sample
from slime_store.errors import UnsupportedValueError
from slime_store.mapping.rewards import from_columns, is_exact_in_columns, numeric_entries, reward_columns
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import opened, run_of
from slime_store.types import Placeholder


@pytest.mark.parametrize(
    ("reward", "number", "word"),
    [
        (None, None, "none"),
        (1, 1.0, "int"),
        (1.0, 1.0, "float"),
        (True, 1.0, "bool"),
        (np.float32(1), 1.0, "float"),
        (math.nan, None, "nan"),
        (math.inf, math.inf, "float"),
        ("1.0", None, "str"),
        ({"a": 1}, None, "dict"),
        ([1], None, "other"),
        (10**400, None, "other"),
    ],
)
def test_a_reward_has_a_number_only_when_it_is_one(reward: Any, number: float | None, word: str) -> None:
    assert reward_columns(reward) == (number, word)


@given(st.none() | st.booleans() | st.integers() | st.floats())
def test_what_is_called_exact_comes_back_exactly(reward: Any) -> None:
    if is_exact_in_columns(reward):
        assert_same(from_columns(*reward_columns(reward)), reward)


@pytest.mark.parametrize("reward", [math.nan, -0.0, 2**53 + 1, np.float32(0.5), "x", {}])
def test_what_a_database_would_change_is_not_called_exact(reward: Any) -> None:
    assert not is_exact_in_columns(reward)


def test_entries_of_a_dict_are_told_apart_by_depth_and_key() -> None:
    reward = {"math.acc": 1, "math": {"acc": 2, "deep": {"x": math.nan}}, "": 3, "text": "no", 4: 5, "t": True}
    assert list(numeric_entries(reward)) == [
        (1, "math.acc", 1.0),
        (2, '["math","acc"]', 2.0),
        (3, '["math","deep","x"]', None),
        (1, "", 3.0),
        (1, "t", 1.0),
    ]


class Named(UserDict[str, Any]):
    """A reward as a library may return one."""


@pytest.mark.parametrize(
    "reward",
    [UserDict(a=1.0), {"n": UserDict(a=1.0)}, Named(a=1, b=Named(c=True)), UserDict(a={"b": 2}), UserDict(a="x")],
    ids=["alone", "inside", "subclass", "dict inside", "text"],
)
def test_what_is_loaded_as_a_dict_has_the_numbers_of_one(store_url: str, reward: Any) -> None:
    with run_of(store_url, "run") as run:
        run.record_train(0, [[Sample(reward=reward)]])
    with opened(store_url) as store:
        loaded = store.run("run").load_train(0).samples[0][0].reward
        assert type(loaded) is dict and store.verify().problems == ()
    assert reward_columns(reward) == reward_columns(loaded) == (None, "dict")


def test_a_dict_that_holds_itself_has_no_numbers() -> None:
    reward: UserDict[str, Any] = UserDict()
    reward.data = reward  # type: ignore[assignment]
    assert reward_columns(reward) == (None, "other")


LIES = [
    dict,
    UserDict,
    list,
    tuple,
    float,
    int,
    bool,
    str,
    np.ndarray,
    np.float32,
    torch.Tensor,
    Placeholder,
    ValueError,
]


@pytest.mark.parametrize("claimed", LIES, ids=lambda each: each.__name__)
def test_a_reward_that_lies_about_its_class_is_refused_or_stood_in_for(sqlite_url: str, claimed: type) -> None:
    class Lie:
        __class__ = property(lambda self: claimed)  # type: ignore[assignment]

    with run_of(sqlite_url, "run") as run:
        for reward in (Lie(), {"a": Lie()}):
            with pytest.raises(UnsupportedValueError):
                run.record_train(0, [[Sample(reward=reward)]], strict=True)
        run.record_train(0, [[Sample(reward=Lie()), Sample(reward={"a": Lie(), "b": 1})]], strict=False)
        first, second = run.load_train(0).samples[0]
        assert type(first.reward) is type(second.reward["a"]) is Placeholder
    with opened(sqlite_url) as store:
        assert store.verify().problems == ()
