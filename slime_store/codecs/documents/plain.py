"""The fast path: values that JSON already says exactly, checked without touching each element in Python."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import count
from typing import Any

LONG_LIST = 256
"""Lists of at least this many numbers are packed as arrays."""
LONG_TEXT = 64 * 1024
"""Texts of at least this many bytes become blobs."""
MAX_DEPTH = 100
"""Deepest nesting of containers: encoding takes five Python frames a level, ten in keys, of about 1,000."""

MAX_CONTAINERS = 2**20
"""Most containers of a document that are looked at without minding which of them are the same."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_PLAIN = _SCALARS | {dict, list}
_STRINGS = frozenset({str})
_NUMBERS = (frozenset({int}), frozenset({float}), frozenset({bool}))
# What the text must not contain to be exact and to pass every database: NUL, an integer of 64 bits or more. A hit
# inside a string only costs the slow path.
_SUSPECT = re.compile(r"\\u0000|\d{19}")
_TAG_LIKE = re.compile(r'[{,]"\$')  # may be a key that looks like a tag, or a text after a comma
_LONG_STRING = re.compile(rf'"[^"]{{{LONG_TEXT}}}')
_dumps = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")).encode


def plain_json(value: Any) -> str | None:
    """Return JSON text that reads back as exactly ``value``, or None when that takes tags.

    Costs one C-speed type check a container and one C-speed dump: no Python work for each element.
    """
    try:
        if not _is_plain(value, MAX_DEPTH, count().__next__):
            return None
        text = _dumps(value)
    except (ValueError, RecursionError):  # NaN or infinity; so many frames of the caller's that few are left
        return None
    if _SUSPECT.search(text) is not None or (len(text) > LONG_TEXT and _LONG_STRING.search(text) is not None):
        return None
    if _TAG_LIKE.search(text) is not None and _has_tag_like_key(value):
        return None
    return text if is_encodable(text) else None


def is_encodable(text: str) -> bool:
    """True when the text has no lone surrogate, so that UTF-8 can carry it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_clean(text: str) -> bool:
    """True when both databases keep and search the text as it is: no NUL, no lone surrogate."""
    return "\0" not in text and is_encodable(text)


def _is_plain(value: Any, depth: int, n_before: Callable[[], int]) -> bool:
    kind = type(value)
    if n_before() > MAX_CONTAINERS:
        return False
    if kind is dict:
        if not set(map(type, value)) <= _STRINGS:
            return False
        children = value.values()
    elif kind is list:
        children = value
    else:
        return kind in _SCALARS
    kinds = frozenset(map(type, children))
    if kinds <= _SCALARS:
        packable = kind is list and len(value) >= LONG_LIST and kinds in _NUMBERS
        return depth > 0 and not packable
    if depth <= 0 or not kinds <= _PLAIN:
        return False
    return all(_is_plain(child, depth - 1, n_before) for child in children if type(child) not in _SCALARS)


def _has_tag_like_key(value: Any) -> bool:
    if type(value) is dict:
        return any(key[:1] == "$" for key in value) or any(map(_has_tag_like_key, value.values()))
    return type(value) is list and any(map(_has_tag_like_key, value))
