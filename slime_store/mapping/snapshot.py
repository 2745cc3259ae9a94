"""A snapshot of samples that goes on being worked on: cheap enough to take inside an event loop."""

from __future__ import annotations

import copy
import sys
from array import array
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from slime_store.codecs.documents.classes import why_no_exact_exception
from slime_store.mapping.fields import ARRAY_FIELDS
from slime_store.types.duck import is_sample

_FLAT = frozenset(ARRAY_FIELDS)
_DICTS = (OrderedDict, defaultdict, Counter)
_MAX_DEPTH = 60  # each level takes two of Python's frames, of which a thousand are allowed, the caller's included
_NUMBERS = (int, float, bool)
_ATOMS = (str, int, float, bool, bytes, type(None))


def snapshot(tree: Any, *, arrays: bool = False) -> Any:
    """Return a copy of nested samples that later changes to them do not reach.

    Lists, dicts, sets, deques, records and the exceptions that can be stored are copied, down to 60 levels. What lies
    deeper, records that refuse to be copied, and images, which generation replaces but does not change, are shared.
    Costs about 3 ns a token and field.

    Args:
        tree: the samples.
        arrays: copy arrays, structured scalars and tensors as well; else they are shared too.
    """
    return _copy(tree, _Seen() if arrays else {}, 0)


class _Seen(dict[int, Any]):
    """Copies by what they are copies of, where arrays and tensors are copied."""


def _copy(value: Any, seen: dict[int, Any], depth: int) -> Any:
    kind: Any = type(value)
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
        copied = seen[id(value)] = tuple(_copy(item, seen, depth + 1) for item in value)
    elif kind is set:
        copied = set(value)
    elif kind in _DICTS or kind in (deque, bytearray):
        copied = copy.copy(value)
        seen[id(value)] = copied
        for key in range(len(value)) if kind is deque else value if kind in _DICTS else ():
            copied[key] = _copy(value[key], seen, depth + 1)
    elif is_sample(value):
        copied = object.__new__(kind)
        seen[id(value)] = copied
        for name, item in value.__dict__.items():
            flat = name in _FLAT and type(item) is list and _of_numbers(item)
            copied.__dict__[name] = item.copy() if flat else _copy(item, seen, depth + 1)
    elif is_dataclass(value) or kind is SimpleNamespace or isinstance(value, (UserDict, UserList)):
        return _copy_record(value, seen, depth)
    elif isinstance(value, tuple) and hasattr(kind, "_make"):
        copied = seen[id(value)] = kind._make(_copy(item, seen, depth + 1) for item in value)
    elif isinstance(value, BaseException):
        if why_no_exact_exception(value) is not None:
            return value
        copied = seen[id(value)] = kind.__new__(kind)
        copied.args = tuple(_copy(item, seen, depth + 1) for item in value.args)
    elif isinstance(seen, _Seen):
        copied = seen[id(value)] = _copy_array(value, seen, depth)
    else:
        return value
    return copied


def _of_numbers(values: list[Any]) -> bool:
    """Whether a token field holds numbers: its first and last say so; to look at all costs ten times as much."""
    return not values or (type(values[0]) in _NUMBERS and type(values[-1]) in _NUMBERS)


def _copy_array(value: Any, seen: _Seen, depth: int) -> Any:
    torch = sys.modules.get("torch")
    try:
        if isinstance(value, array):
            return copy.copy(value)
        if isinstance(value, np.ndarray):
            copied = copy.copy(value)
            if value.dtype == object:
                for index in np.ndindex(value.shape):
                    copied[index] = _copy(value[index], seen, depth + 1)
            return copied
        if isinstance(value, np.void):  # a structured one is a view of the array that it was taken from
            scalar: Any = value
            copied = copy.copy(scalar)
            if value.flags.writeable:
                return copied
            frozen = np.asarray(copied)
            frozen.flags.writeable = False
            return frozen[()]
        if torch is not None and isinstance(value, torch.Tensor):
            if type(value) is not torch.Tensor:
                return copy.deepcopy(value)
            return value.detach().clone().requires_grad_(value.requires_grad)
    except Exception:  # of an exotic kind
        return value
    return value


def _copy_record(value: Any, seen: dict[int, Any], depth: int) -> Any:
    try:
        copied = copy.copy(value)
        seen[id(value)] = copied
        for name in vars(value) if hasattr(value, "__dict__") else [field.name for field in fields(value)]:
            object.__setattr__(copied, name, _copy(getattr(value, name), seen, depth + 1))  # some are frozen
    except Exception:  # the user's own code
        seen[id(value)] = value
        return value
    return copied
