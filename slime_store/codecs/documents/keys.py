"""Keys of dicts and members of sets: what must be hashable, and differ, when it is read as well."""

from __future__ import annotations

import dataclasses
from collections import UserDict
from collections.abc import Callable
from typing import Any

from slime_store.codecs.documents.classes import as_record, with_fields
from slime_store.errors import BlobCorruptError
from slime_store.types import Placeholder, Record
from slime_store.types.duck import is_sample, nested_in_sample

_UNHASHABLE = ("SpecInfo", "PrefixCacheInfo")


def comes_back_hashable(value: Any) -> bool:
    """False for keys of which no hash can be taken when they are read, whatever hash they have now."""
    try:
        return _has_hash(_as_read(value))
    except Exception:  # of a class's own code
        return False


def _as_read(value: Any) -> Any:
    """Return a key with a dict for what is read as a dict or a sample, wherever its hash may look."""
    if isinstance(value, (tuple, frozenset)):
        return _with_items(value, _as_read)
    if isinstance(value, UserDict) or is_sample(value) or nested_in_sample(value) in _UNHASHABLE:
        return {}
    if dataclasses.is_dataclass(value) and type(value).__hash__ is not object.__hash__:
        return with_fields(value, lambda _, item: _as_read(item))
    return value


def _with_items(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a tuple or frozenset with every item changed; itself where that changes none."""
    items = list(value)
    changed = list(map(change, items))
    if all(one is other for one, other in zip(items, changed, strict=True)):
        return value
    return tuple.__new__(type(value), changed) if isinstance(value, tuple) else frozenset(changed)


def is_placeholder(body: Any) -> bool:
    """Whether a document stands for a value that could not be kept."""
    return type(body) is dict and "$placeholder" in body


def keep_apart(bodies: list[Any]) -> list[Any]:
    """Return the documents of keys, those of placeholders that look alike with a number: they must stay two."""
    seen: set[tuple[str, str]] = set()
    numbers: dict[tuple[str, str], int] = {}
    for body in filter(is_placeholder, bodies):
        stand_in = body["$placeholder"]
        text, first = stand_in.text, (stand_in.type_name, stand_in.text)
        while (stand_in.type_name, stand_in.text) in seen:
            numbers[first] = numbers.get(first, 1) + 1
            stand_in.text = f"{text} (key {numbers[first]})"
        seen.add((stand_in.type_name, stand_in.text))
    return bodies


def to_dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a dict with every one of the pairs; BlobCorruptError where two keys can only be equal."""
    try:
        made = dict(pairs)
    except Exception:  # of a class's own code, which may have no hash any more
        made = {}
    if len(made) == len(pairs):
        return made
    return dict(zip(_told_apart([key for key, _ in pairs]), [value for _, value in pairs], strict=True))


def to_members(values: list[Any]) -> list[Any]:
    """Return what makes a set of as many members; BlobCorruptError where two can only be equal."""
    try:
        if len(set(values)) == len(values):
            return values
    except Exception:  # as above
        pass
    return _told_apart(values)


def _told_apart(keys: list[Any]) -> list[Any]:
    """Return keys that differ, as they did in the process that wrote them.

    There they may have been hashed by identity, or by some of their fields; where the class is not loaded, or has
    another hash by now, records stand for them, with numbers where they would be equal.
    """
    told: dict[Any, None] = {}
    numbers: dict[Any, int] = {}
    for key in map(_hashable, keys):
        apart = key
        while apart in told:
            numbers[key] = numbers.get(key, 0) + 1
            apart = _numbered(key, numbers[key])
            if apart is None:
                raise BlobCorruptError("two keys of a dict, or two members of a set, are equal")
        told[apart] = None
    return list(told)


def _hashable(key: Any) -> Any:
    """Return a key with records in the place of what has no hash any more."""
    if _has_hash(key):
        return key
    changed = _with_items(key, _hashable) if isinstance(key, tuple) else key
    return changed if _has_hash(changed) else as_record(key) or key


def _has_hash(key: Any) -> bool:
    try:
        hash(key)
    except Exception:
        return False
    return True


def _numbered(key: Any, number: int) -> Any:
    """Return a key with a number in a record in it, or as a record; None where that cannot be."""
    if isinstance(key, Record):
        return key.numbered(number)
    if isinstance(key, Placeholder):  # of a tuple or set, which were once written without numbers
        return Placeholder(key.type_name, f"{key.text} (key {number + 1})")
    if isinstance(key, (tuple, frozenset)):
        items = list(key)
        for i, item in enumerate(items):
            items[i] = _numbered(item, number)
            if items[i] is not None:
                return tuple.__new__(type(key), items) if isinstance(key, tuple) else frozenset(items)
            items[i] = item
        return None
    record = as_record(key)
    return record and record.numbered(number)
