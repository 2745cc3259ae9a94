"""Single attributes as column values.

Each function returns what the column holds and, where that does not give the attribute back exactly, puts the attribute
into ``extra``. A column is a copy for asking questions: no odd value may make it fail.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slime_store.mapping import rewards
from slime_store.mapping.fields import COUNTERS, INFO_CLASSES, MAX_TURNS
from slime_store.mapping.packs import Piece
from slime_store.mapping.text import indexable, searchable

Attributes = dict[str, Any]

INT64 = range(-(2**63), 2**63)
_SUMMABLE = frozenset({"empty", "int", "float", "bool", "float16", "float32", "float64"}) | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}


def integer(name: str, attributes: Attributes, extra: Attributes) -> int | None:
    """Return a BIGINT: the value, or for an integer of another type the equal number; None for what is neither."""
    value = attributes.get(name)
    if value is None or (type(value) is int and value in INT64):
        return value
    extra[name] = value
    return _whole(value)


def _whole(value: Any) -> int | None:
    """Return the equal number of an integer of another type, as far as a BIGINT can hold it."""
    if not isinstance(value, (int, np.integer)):
        return None
    try:
        number = int(value)  # a time span is one of numpy's integers, and has none
    except Exception:  # a subclass's own code
        return None
    return number if number in INT64 else None


def seconds(name: str, attributes: Attributes, extra: Attributes) -> float | None:
    """Return a DOUBLE; None for NaN and for what is no number."""
    value = attributes.get(name)
    if value is None:
        return None
    if type(value) is not float or not rewards.is_exact_in_columns(value):
        extra[name] = value
    number = rewards.numeric_value(value)
    return None if number is None or math.isnan(number) else number


def flag(name: str, attributes: Attributes, extra: Attributes) -> bool:
    """Return a BOOLEAN; what has no truth value counts as False."""
    value = attributes.get(name, False)
    if type(value) is bool:
        return value
    extra[name] = value
    try:
        return bool(value)
    except Exception:  # an array of several elements, or whatever an object's own code does
        return False


def status(attributes: Attributes, extra: Attributes, sample_type: type[Any]) -> str:
    """Return the plain word. What is not the sample class's own status is kept exactly in ``extra``."""
    value = attributes.get("status")
    word = getattr(value, "value", value)
    if type(value) is not sample_type.Status or not isinstance(word, str):
        extra["status"] = value
    try:
        return searchable(str(word))
    except Exception:  # an object's own code
        return type(word).__name__


def counters(name: str, attributes: Attributes, extra: Attributes, sample_type: type[Any]) -> list[int]:
    """Return a BIGINT for each counter of ``spec_info`` or ``prefix_cache_info``, 0 for what is no integer."""
    info = attributes.get(name)
    values = dict(getattr(info, "__dict__", {}))
    numbers = [values.pop(counter, None) for counter in COUNTERS[name]]
    own = type(info) is getattr(sample_type, INFO_CLASSES[name], None) and not values
    if name in attributes and not (own and all(type(n) is int and n in INT64 for n in numbers)):
        extra[name] = info
    return [_whole(n) or 0 for n in numbers]


def versions(attributes: Attributes, extra: Attributes) -> list[tuple[str, int]]:
    """Run-length encode the weight versions; what is not a plain list of clean strings is kept in ``extra``.

    So is a list of more than ``MAX_TURNS``, so that no number that a row may claim is ever written out.
    """
    given = attributes.get("weight_versions")
    if not isinstance(given, (list, tuple)):
        if "weight_versions" in attributes:
            extra["weight_versions"] = given
        return []
    runs: list[tuple[str, int]] = []
    exact = type(given) is list
    for version in given:
        label = version_label(version)
        exact = exact and type(version) is str and label == version
        if runs and runs[-1][0] == label:
            runs[-1] = (label, runs[-1][1] + 1)
        else:
            runs.append((label, 1))
    if not exact or len(given) > MAX_TURNS:
        extra["weight_versions"] = given
    return runs


def version_label(version: Any) -> str:
    """Return the label of a weight version: its text, or for a number the number."""
    if isinstance(version, str):
        return indexable(version)
    try:
        if isinstance(version, (int, np.integer)) and not isinstance(version, bool):
            return indexable(str(int(version)))
        return indexable(repr(version))
    except Exception:  # an object's own code
        return type(version).__name__


def length(value: Any) -> int:
    """Return the number of elements, 0 for what has none."""
    try:
        return len(value)
    except Exception:  # an object's own code
        return 0


def mask_sum(piece: Piece | None) -> int | None:
    """Sum a loss mask of any type whose array holds its numbers; None where the sum is not whole."""
    if piece is None or piece.type.removeprefix("numpy.") not in _SUMMABLE:
        return None
    total = float(piece.array.sum(dtype=np.float64))  # exact up to 2**53
    return int(total) if total.is_integer() and int(total) in INT64 else None
