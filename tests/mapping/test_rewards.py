"""What of a reward can be asked in numbers, and what gives it back exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_store.mapping.rewards import from_columns, is_exact_in_columns, numeric_entries, reward_columns
from slime_store.testing import assert_same


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
