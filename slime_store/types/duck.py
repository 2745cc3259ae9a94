"""Recognising samples of any framework: ours, slime's, miles's, and subclasses of them."""

from __future__ import annotations

from typing import Any

_MARKS = ("Status", "SpecInfo", "from_dict", "to_dict")
_FIELDS = frozenset({"prompt", "tokens", "response", "reward", "status"})


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
