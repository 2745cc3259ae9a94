"""A snapshot of samples that goes on being worked on: cheap enough to take inside an event loop."""

from __future__ import annotations

import copy
from typing import Any

from slime_store.mapping.fields import ARRAY_FIELDS
from slime_store.types.duck import is_sample

_FLAT = frozenset(ARRAY_FIELDS)
_MAX_DEPTH = 60  # each level takes two of Python's frames, of which a thousand are allowed, the caller's included
_ATOMS = (str, int, float, bool, bytes, type(None))


def snapshot(tree: Any) -> Any:
    """Return a copy of nested samples that later changes to them do not reach.

    Lists, dicts, sets and small records are copied, down to 60 levels. What lies deeper, records that refuse to be
    copied, and tensors, arrays and images, which generation replaces but does not change, are shared. Costs about 3 ns
    a token and field.
    """
    return _copy(tree, {}, 0)


def _copy(value: Any, seen: dict[int, Any], depth: int) -> Any:
    kind = type(value)
    if kind in _ATOMS or depth > _MAX_DEPTH:
        return value
    known = seen.get(id(value))
    if known is not None:
        return known
    if kind is list:
        copied: Any = []
        seen[id(value)] = copied
        copied += [_copy(item, seen, depth + 1) for item in value]
    elif kind is dict:
        copied = {}
        seen[id(value)] = copied
        copied.update({key: _copy(item, seen, depth + 1) for key, item in value.items()})
    elif kind is tuple:
        copied = tuple(_copy(item, seen, depth + 1) for item in value)
    elif kind is set:
        copied = set(value)
    elif is_sample(value):
        copied = object.__new__(kind)
        seen[id(value)] = copied
        for name, item in value.__dict__.items():
            flat = name in _FLAT and type(item) is list
            copied.__dict__[name] = item.copy() if flat else _copy(item, seen, depth + 1)
    elif hasattr(kind, "__dataclass_fields__"):
        try:
            copied = copy.copy(value)
        except Exception:  # the user's own code
            return value
    else:
        return value
    return copied
