"""Recognising samples of any framework, and what is nested in them: ours, slime's, miles's, and subclasses."""

from __future__ import annotations

import sys
from typing import Any

from slime_store.types.sample import Sample

_MARKS = ("Status", "SpecInfo", "from_dict", "to_dict")
_FIELDS = frozenset({"prompt", "tokens", "response", "reward", "status"})


_WORDS = frozenset(status.value for status in Sample.Status)
_known: dict[Any, bool] = {}


def is_sample_type(cls: type[Any]) -> bool:
    """True for a ``Sample`` class: a dataclass with the fields and nested classes of slime's."""
    answer = _known.get(cls)
    if answer is None:
        fields = getattr(cls, "__dataclass_fields__", None)
        answer = fields is not None and fields.keys() >= _FIELDS and all(hasattr(cls, mark) for mark in _MARKS)
        _known[cls] = answer
    return answer


def is_sample(value: Any) -> bool:
    """True for an instance of a ``Sample`` class, slime's, miles's or ours."""
    return is_sample_type(type(value))


def nested_in_sample(value: Any) -> str | None:
    """Return "Status", "SpecInfo" or "PrefixCacheInfo" for an instance of that class of a ``Sample`` class, or None.

    A status word of its own, that no framework has, makes a status an ordinary enum member.
    """
    cls = type(value)
    outer_name, _, name = cls.__qualname__.rpartition(".")
    if name not in ("Status", "SpecInfo", "PrefixCacheInfo") or not outer_name:
        return None
    outer: Any = sys.modules.get(cls.__module__)
    for part in outer_name.split("."):
        outer = getattr(outer, part, None)
    if not isinstance(outer, type) or not is_sample_type(outer) or getattr(outer, name, None) is not cls:
        return None
    return name if name != "Status" or value.value in _WORDS else None
