"""Metadata filters: what a document contains when it matches, and what is equal to what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_store.codecs.documents import DocumentDecoder, DocumentEncoder
from slime_store.mapping.metadata import fragments, metadata_matches


class _NoBlobs:
    def get(self, name: str) -> bytes:
        raise AssertionError(name)


TEXTS = st.text(st.sampled_from('ab"\\\n$:{}\x00\ud83dé☃'), max_size=4)
VALUES = st.one_of(
    TEXTS,
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([1.0, 0.5, float("nan"), float("inf"), np.int64(1), np.bool_(True), np.str_("a"), (1, "a")]),
    st.lists(st.integers(0, 1), max_size=2),
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
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_equal_as_in_python_but_true_is_not_one(value: Any, wanted: Any, expected: bool) -> None:
    assert metadata_matches({"k": value}, {"k": wanted}) is expected
    assert not metadata_matches({"other": value}, {"k": wanted})
    assert not metadata_matches(None, {"k": wanted})
