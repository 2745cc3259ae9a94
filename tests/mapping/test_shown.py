"""Documents as data frames and the command line show them: nothing of a value is missing, and none ends a question."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from slime_store.codecs.documents import DocumentEncoder
from slime_store.mapping.shown import shown, shown_text, texts_in


def document(value: Any) -> Any:
    return json.loads(DocumentEncoder(None).document(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({1: "a", "1": "b"}, {"$dict": [[1, "a"], ["1", "b"]]}),
        ({(1, 2): 1, "[1,2]": 2}, {"$dict": [[[1, 2], 1], ["[1,2]", 2]]}),
        ({1: "a", 2: "b"}, {"1": "a", "2": "b"}),
        (range(0, 10, 2), [0, 2, 4, 6, 8]),
        (range(2**40), "range(0, 1099511627776)"),
        (range(10**5000), "<range>"),
        (range(2**70, 2**70 + 2), [2**70, 2**70 + 1]),
        (10**5000, hex(10**5000)),
        ([1] * 300, [1] * 300),
        ([0.5, float("nan")] * 200, [0.5, "nan"] * 200),
        ([np.int8(1)] * 300, [1] * 300),
    ],
    ids=[
        "like",
        "deep",
        "unlike",
        "range",
        "long_range",
        "no_range",
        "large_range",
        "long_int",
        "list",
        "floats",
        "numpy",
    ],
)
def test_a_value_is_shown_whole(value: Any, expected: Any) -> None:
    assert shown(document(value)) == expected
    assert shown_text(shown(document({"v": value}))) is not None


def test_a_moment_of_numpy_is_no_number() -> None:
    assert type(shown(document(np.datetime64("2024-01-01", "ns")))) is dict
    assert type(shown(document([np.complex64(1)] * 300))) is dict


def test_texts_are_found_also_where_keys_look_alike() -> None:
    assert set(texts_in(document([{1: "a", "1": {"x": "b"}}, "c"]), lambda name: b"")) == {"a", "b", "c"}
