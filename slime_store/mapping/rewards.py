"""Rewards: what of them can be asked in numbers."""

from __future__ import annotations

import json
import math
import sys
from collections import UserDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from slime_store.mapping.text import indexable, searchable

_MAX_KEY_DEPTH = 8
_MAX_KEYS = 256


def numeric_value(value: Any) -> float | None:
    """Return a number as float, or None for what is not a number. NaN comes back as NaN.

    Numbers are int, float, bool, numpy numbers and bools, and torch tensors of one element.
    """
    kind = type(value)
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind is bool or kind is int or issubclass(kind, (int, float, np.bool_, np.integer, np.floating)):
        try:
            return float(value)
        except Exception:  # beyond the range of float, or a subclass's own code
            return None
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        try:
            return float(value.detach()) if value.numel() == 1 and not value.is_complex() else None
        except (RuntimeError, NotImplementedError):  # a tensor without values of its own
            return None
    return None


def reward_columns(reward: Any) -> tuple[float | None, str]:
    """Return (number for queries or None, type word) of a reward.

    The type word is ``none``, ``float``, ``nan``, ``int``, ``bool``, ``str``, ``dict`` or ``other``. NaN has no
    number, since SQLite would make it NULL and PostgreSQL would sort it above all; the word ``nan`` counts it.
    """
    if reward is None:
        return None, "none"
    kind = type(reward)  # not its __class__, which may say anything
    number = numeric_value(reward)
    if number is not None:
        if math.isnan(number):
            return None, "nan"
        if issubclass(kind, (bool, np.bool_)):
            return number, "bool"
        return number, "int" if issubclass(kind, (int, np.integer)) else "float"
    if issubclass(kind, str):
        return None, "str"
    return None, "dict" if dict_of(reward) is not None else "other"


def dict_of(value: Any) -> Mapping[Any, Any] | None:
    """Return what is loaded as a dict: a dict, or what a ``UserDict`` holds; None for anything else."""
    for _ in range(_MAX_KEY_DEPTH):  # one may hold itself
        if not issubclass(type(value), UserDict):
            break
        value = vars(value).get("data")
    return value if issubclass(type(value), dict) else None


def is_exact_in_columns(reward: Any) -> bool:
    """True when number and type word give the reward back exactly.

    Not so for NaN, which has a sign and a payload, and for -0.0, which SQLite stores as the integer 0.
    """
    if reward is None or type(reward) is bool:
        return True
    if type(reward) is float:
        return reward == reward and (reward != 0.0 or math.copysign(1.0, reward) > 0)
    return type(reward) is int and -(2**53) <= reward <= 2**53


def from_columns(number: float | None, reward_type: str) -> Any:
    """Rebuild a reward that ``is_exact_in_columns``."""
    if number is None:
        return None
    if reward_type == "int":
        return int(number)
    return bool(number) if reward_type == "bool" else number


def entry_key(path: tuple[str, ...]) -> str:
    """Return the key under which the entry of a dict reward at this path is stored; see ``numeric_entries``."""
    clean = tuple(map(searchable, path))
    return indexable(clean[0] if len(clean) == 1 else json.dumps(clean, ensure_ascii=False, separators=(",", ":")))


def numeric_entries(reward: Mapping[Any, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[int, str, float | None]]:
    """Yield (depth, key, value) of each numeric entry of a dict reward; None stands for NaN.

    At depth 1 the key is the dict's own; deeper, it is the JSON list of keys on the way, so that the key
    ``"math.acc"`` and ``{"math": {"acc": ...}}`` are never confused. Keys that are not strings are left out, and so is
    what lies deeper than 8 levels. At most 256 entries of one dict are yielded.
    """
    for n, (key, value) in enumerate(reward.items()):
        if n >= _MAX_KEYS:
            return
        if type(key) is not str:
            continue
        here = (*path, key)
        inner = dict_of(value)
        if inner is not None:
            if len(here) < _MAX_KEY_DEPTH:
                yield from numeric_entries(inner, here)
            continue
        number = numeric_value(value)
        if number is not None:
            yield len(here), entry_key(here), None if math.isnan(number) else number
