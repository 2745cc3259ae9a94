"""Metadata filters: what a document contains when it matches, and what is equal to what."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_store.codecs.documents import DocumentDecoder, DocumentEncoder
from slime_store.mapping.metadata import fragments, metadata_matches


class _NoBlobs:
    def get(self, name: str) -> bytes:
        raise AssertionError(name)


class _Odd:
    """Answers every comparison with one thing, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __eq__(self, other: object) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def __hash__(self) -> int:
        return hash(1)


class _Word(str, enum.Enum):
    A = "a"


TEXTS = st.text(st.sampled_from('ab"\\\n$:{}\x00\ud83dé☃'), max_size=4)
VALUES = st.one_of(
    TEXTS,
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([1.0, 0.5, float("nan"), float("inf"), np.int64(1), np.bool_(True), np.str_("a"), (1, "a")]),
    st.lists(st.integers(0, 1) | st.sampled_from([True, np.int64(1)]), max_size=2),
    st.sampled_from(
        [np.array([1, 1]), np.array(1), torch.ones(1), np.array(["a"]), b"a", range(2), decimal.Decimal(1)]
    ),
    st.dictionaries(TEXTS, TEXTS, max_size=1),
)
WANTED = VALUES | st.lists(VALUES, min_size=1, max_size=3).map(tuple) | st.frozensets(TEXTS, min_size=1, max_size=3)


@given(metadata=st.dictionaries(TEXTS, VALUES, max_size=3), key=TEXTS, wanted=WANTED, pick=st.booleans())
def test_a_document_that_matches_contains_a_fragment(
    metadata: dict[str, Any], key: str, wanted: Any, pick: bool
) -> None:
    if pick and metadata:
        key = next(iter(metadata))
        wanted = metadata[key]
    document = DocumentEncoder(None).document(metadata)
    decoded = DocumentDecoder(_NoBlobs()).document(document)
    if metadata_matches(decoded, {key: wanted}) and not document.startswith('{"$dict"'):
        assert any(fragment in document for fragment in fragments(key, wanted))


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (1, 1.0, True),
        (1, True, False),
        (True, 1, False),
        (np.bool_(True), True, True),
        ("1", 1, False),
        (None, None, True),
        ("b", ("a", "b"), True),
        ("b", {"a", "b"}, True),
        (("a", "b"), ("a", "b"), True),
        ("b", ["a", "b"], False),
        (np.array([1, 2]), 1, False),
        (float("nan"), float("nan"), False),
        # numpy scalars are the Python values that they equal
        (np.int64(1), 1, True),
        (1, np.int64(1), True),
        (np.float32(0.5), 0.5, True),
        (np.str_("a"), "a", True),
        (b"a", np.bytes_(b"a"), True),
        (np.int64(1), True, False),
        (np.bool_(True), 1, False),
        (np.datetime64("2020-01-01", "ns"), np.datetime64("2020-01-01"), True),
        (np.datetime64(1, "ns"), 1, False),
        (np.float64("nan"), np.float64("nan"), False),
        # nothing is broadcast
        (np.int64(1), [1], False),
        ([1], np.int64(1), False),
        ([1, 1], np.int64(1), False),
        (1, np.array([1]), False),
        (np.array([1]), 1, False),
        (np.array(1), 1, False),
        ([1], np.array([1]), False),
        (np.array([[1]]), np.array([1]), False),
        (torch.tensor(1), 1, False),
        (torch.ones(2), torch.ones(1), False),
        (torch.ones(1), np.ones(1), False),
        (decimal.Decimal(1), np.array([1, 1]), False),
        ("a", np.array(["a", "a"]), False),
        # arrays and tensors equal their like
        (np.array([1, 2]), np.array([1.0, 2.0]), True),
        (np.array([1, 0]), np.array([True, False]), False),
        (np.array([np.nan]), np.array([np.nan]), False),
        (np.array([[1], None], object), np.array([[1], None], object), True),
        (np.array([[True]], object), np.array([[1]], object), False),
        (np.array([(1, 2.0)], "i4,f8"), np.array([(1, 2.0)], "i4,f8"), True),
        (np.array([(1, 2.0)], "i4,f8"), np.array([1]), False),
        (torch.ones(2), torch.ones(2, dtype=torch.int8), True),
        (torch.ones(2), torch.tensor([1, 2]), False),
        (torch.ones(1), torch.tensor([True]), False),
        # containers by their items, to any depth
        ([1, [2.0, "a"]], [1.0, [2, "a"]], True),
        ([1], [True], False),
        ([np.int64(1)], [1], True),
        ([1], (1,), False),
        ([(1,)], [[1]], False),
        ([float("nan")], [float("nan")], False),
        ([np.array([1, 2])], [np.array([1, 2])], True),
        ([np.array([1, 2])], [1], False),
        ({"a": [1], "b": np.int8(2)}, {"b": 2, "a": [1.0]}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({1: 1}, {True: 1}, False),
        (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1), False),
        (collections.OrderedDict(a=1, b=2), {"b": 2, "a": 1}, True),
        ({1, 2}, {2, 1}, True),
        ({1, 2}, frozenset({True, 2}), False),
        ({(1,)}, {(True,)}, False),
        ({np.int64(1), "a"}, {"a", 1}, True),
        (dt.datetime(2020, 1, 1), np.datetime64("2020-01-01T00:00"), False),
        (np.datetime64("2020-01-01T00:00"), dt.datetime(2020, 1, 1), False),
        (np.longdouble(0.5), 0.5, True),
        (np.longdouble(0.5), [0.5], False),
        (0.5, np.longdouble(0.5), True),
        (range(3), range(3), True),
        (range(10**10), [0], False),
        (collections.deque([1, [2]]), collections.deque([1, [2]]), True),
        ([1], collections.deque([1]), False),
        (decimal.Decimal("0.5"), 0.5, True),
        (_Word.A, "a", True),
        (_Word.A, _Word.A, True),
        (1, 10**5000, False),
        # of several, as the whole is
        (np.int64(2), (1, 2), True),
        ([2], (1, [2]), True),
        (np.array([2]), (1, np.array([2])), True),
        ((1, 2), (1.0, np.int64(2)), True),
        (True, (0, 1), False),
        # code of objects decides only with yes or no
        (_Odd(True), 1, True),
        (_Odd(np.array([True])), 1, False),
        (_Odd(1), 1, False),
        (_Odd(ValueError("no")), 1, False),
        (1, _Odd(RecursionError("no")), False),
        ([_Odd(ValueError("no"))], [1], False),
        ({_Odd(ValueError("no")): 1}, {1: 1}, False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_equal_as_in_python_but_true_is_not_one(value: Any, wanted: Any, expected: bool) -> None:
    assert metadata_matches({"k": value}, {"k": wanted}) is expected
    assert not metadata_matches({"other": value}, {"k": wanted})
    assert not metadata_matches(None, {"k": wanted})


def test_a_value_that_contains_itself_matches_nothing() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert not metadata_matches({"k": [[1]]}, {"k": loop})
    other: list[Any] = []
    other.append(other)
    assert not metadata_matches({"k": other}, {"k": loop})


@given(value=VALUES, wanted=WANTED)
def test_matching_is_the_same_both_ways_and_never_fails(value: Any, wanted: Any) -> None:
    assert metadata_matches({"k": value}, {"k": [wanted]}) is False
    if not isinstance(wanted, (tuple, frozenset)) and not isinstance(value, tuple):
        assert metadata_matches({"k": value}, {"k": wanted}) is metadata_matches({"k": wanted}, {"k": value})
