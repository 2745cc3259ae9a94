"""Keys of dicts and members of sets: what must be hashable, and differ, when it is read as well."""

from __future__ import annotations

import json
from collections import UserDict
from typing import Any

from slime_store.types.duck import is_sample, nested_in_sample

_UNHASHABLE = ("SpecInfo", "PrefixCacheInfo")


def comes_back_hashable(value: Any) -> bool:
    """False for keys that are read as a dict or a sample, whatever hash their own class has."""
    if isinstance(value, (tuple, frozenset)):
        return all(map(comes_back_hashable, value))
    return not (isinstance(value, UserDict) or is_sample(value) or nested_in_sample(value) in _UNHASHABLE)


def is_placeholder(body: Any) -> bool:
    """Whether a document stands for a value that could not be kept."""
    return type(body) is dict and "$placeholder" in body


def keep_apart(bodies: list[Any]) -> list[Any]:
    """Return the documents of keys, those of placeholders that look alike with a number: they must stay two."""
    seen: set[str] = set()
    numbers: dict[str, int] = {}
    for body in filter(is_placeholder, bodies):
        stand_in = body["$placeholder"]
        text = stand_in["text"]
        first = looks = json.dumps(stand_in)
        while looks in seen:
            numbers[first] = numbers.get(first, 1) + 1
            stand_in["text"] = f"{text} (key {numbers[first]})"
            looks = json.dumps(stand_in)
        seen.add(looks)
    return bodies
