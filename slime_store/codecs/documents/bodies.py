"""What stands behind a tag, checked: a document makes nothing larger than what is written in it.

A range is a few bytes that count to any number, and so is a number with an exponent: whatever takes the elements of
what a tag holds, or computes with it, first sees here that it was written out.
"""

from __future__ import annotations

from typing import Any

from slime_store.errors import BlobCorruptError


def items(body: Any, *lengths: int) -> list[Any]:
    """Return a list that is written out in the document, of one of these lengths if any are given."""
    if type(body) is not list or (lengths and len(body) not in lengths):
        raise BlobCorruptError(f"{_kind(body)} where a list{' of another length' if lengths else ''} is due")
    return body


def pairs(body: Any) -> list[tuple[Any, Any]]:
    """Return a list of pairs."""
    return [(key, value) for key, value in (items(pair, 2) for pair in items(body))]


def mapping(body: Any) -> dict[Any, Any]:
    """Return a dict."""
    if type(body) is not dict:
        raise BlobCorruptError(f"{_kind(body)} where a dict is due")
    return body


def attributes(body: Any) -> dict[str, Any]:
    """Return pairs of names and values as a dict."""
    found = dict(pairs(body))
    if not all(type(name) is str for name in found):
        raise BlobCorruptError("an attribute whose name is no text")
    return found


def whole(body: Any, *lengths: int) -> list[int]:
    """Return a list of whole numbers."""
    if not all(type(number) is int for number in items(body, *lengths)):
        raise BlobCorruptError("a list that is not of whole numbers")
    return body  # type: ignore[no-any-return]


def text(body: Any) -> str:
    """Return a text."""
    if type(body) is not str:
        raise BlobCorruptError(f"{_kind(body)} where a text is due")
    return body


def _kind(body: Any) -> str:
    return f"a {type(body).__name__}"
