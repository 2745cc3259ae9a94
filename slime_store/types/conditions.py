"""The forms that the conditions of a filter take: each function checks what was written and gives one form of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from operator import index
from typing import Any

from slime_store.types.sample import Sample

KINDS = ("train", "eval")
VERSION_RULES = ("any", "first", "last")
_STATUS_WORDS = tuple(status.value for status in Sample.Status)
_SLICE = re.compile(r"(?P<start>\d*)(?P<slice>:(?P<stop>\d*))?", re.ASCII)
_PROMPT_ID = re.compile(r"[0-9a-f]{16}")
_NO_END = 2**63 - 1  # the largest id a database column holds


def to_kind(value: Any) -> str | None:
    """Return the kind of rollouts, or None for both."""
    return None if value is None else one_kind(value)


def one_kind(value: Any) -> str:
    """Return the kind of one rollout."""
    if value not in KINDS:
        raise ValueError(f"kind is 'train' or 'eval', not {value!r}")
    return value  # type: ignore[no-any-return]


def _to_integer(value: Any, name: str) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{name} is a whole number, not {value!r}")
    try:
        return index(value)  # takes numpy integers, refuses floats
    except TypeError:
        raise ValueError(f"{name} is a whole number, not {value!r}") from None


def to_count(value: Any, name: str, *, least: int | None = None) -> int | None:
    """Return a whole number that a column can hold."""
    if value is None:
        return None
    number = _to_column(value, name)
    if least is not None and number < least:
        raise ValueError(f"{name} counts from {least}, not {number}")
    return number


def _to_column(value: Any, name: str) -> int:
    number = _to_integer(value, name)
    if not -_NO_END - 1 <= number <= _NO_END:
        raise ValueError(f"{name} is a number of 64 bits, not {number}")
    return number


def to_rollout_ids(value: Any) -> tuple[int, ...] | range | None:
    """Return ids, rising and distinct, or a rising range."""
    if value is None:
        return None
    if isinstance(value, str):
        return _parse_rollout_ids(value)
    if isinstance(value, range):
        rising = value if value.step > 0 else value[::-1]
        for end in (*rising[:1], *rising[-1:]):
            _to_column(end, "every id in rollout_ids")
        return rising if rising[1:] else range(rising.start, rising.start + len(rising))  # of one id any step will do
    if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        return tuple(sorted({_to_column(item, "every id in rollout_ids") for item in value}))
    return (_to_column(value, "rollout_ids"),)


def _parse_rollout_ids(text: str) -> tuple[int, ...] | range:
    match = _SLICE.fullmatch(text.strip())
    if match is None or not (match["start"] or match["slice"]):
        raise ValueError(f"rollout_ids is an id such as '7' or a range such as '10:20', '10:' or ':20', not {text!r}")
    start = _to_column(int(match["start"] or 0), "rollout_ids")
    if not match["slice"]:
        return (start,)
    stop = _to_column(int(match["stop"] or _NO_END), "the end of rollout_ids")
    if stop <= start:
        raise ValueError(f"rollout_ids {text!r} is an empty range; the end is not part of it")
    return range(start, stop)


def to_status_words(value: Any) -> tuple[str, ...] | None:
    """Return distinct words in the order given."""
    if value is None:
        return None
    if isinstance(value, (str, Enum)):
        value = (value,)
    if not isinstance(value, Iterable):
        raise ValueError(f"status is a word, a Status or an iterable of these, not {value!r}")
    return tuple(dict.fromkeys(_to_status_word(item) for item in value))


def _to_status_word(value: Any) -> str:
    if isinstance(value, Enum) and isinstance(value.value, str):
        return value.value  # also a status that only a newer slime knows
    if value not in _STATUS_WORDS:
        raise ValueError(f"unknown sample status {value!r}; known are {', '.join(map(repr, _STATUS_WORDS))}")
    return str(value)


def to_label(value: Any) -> str | None:
    """Return the label of a weight version."""
    if value is None or isinstance(value, str):
        return value
    return str(_to_integer(value, "a weight_version that is no label"))


def to_bound(value: Any, name: str) -> float | None:
    """Return a number that others can be compared with."""
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):  # NaN compares with nothing, so it would quietly match no sample
        raise ValueError(f"{name} is a number, not {value!r}")
    return number


def to_reward_key(value: Any) -> str | tuple[str, ...] | None:
    """Return a key, or a path of at least two."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, Sequence) or not value or not all(isinstance(part, str) for part in value):
        raise ValueError(f"reward_key is a key or a path of keys, not {value!r}")
    return tuple(value) if len(value) > 1 else str(value[0])


def to_version_rule(value: Any) -> str:
    """Return which of a sample's versions count."""
    if value not in VERSION_RULES:
        raise ValueError(f"weight_version_rule is 'any', 'first' or 'last', not {value!r}")
    return str(value)


def to_datasets(value: Any) -> str | tuple[str, ...] | None:
    """Return a name, or several distinct ones in the order given."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping)):
        raise ValueError(f"dataset is text, not {value!r}")
    names = tuple(dict.fromkeys(value))
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"dataset is text or an iterable of texts, not {value!r}")
    return names[0] if len(names) == 1 else names


def to_prompt_id(value: Any) -> str | None:
    """Return the id of a prompt in lower case."""
    if value is None:
        return None
    if not isinstance(value, str) or _PROMPT_ID.fullmatch(value.lower()) is None:
        raise ValueError(f"prompt_id is text of 16 hex digits, not {value!r}")
    return value.lower()


def to_metadata(value: Any) -> dict[str, Any] | None:
    """Return a copy of the wanted keys and values."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"metadata is a dict from key (text) to wanted value, not {value!r}")
    return dict(value)


def to_text(value: Any, name: str) -> str | None:
    """Return a text."""
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is text, not {value!r}")
    if value == "":
        raise ValueError(f"{name} is empty, which every response contains; leave it out")
    return value


def to_prompt(value: Any) -> str | list[Any] | None:
    """Return a prompt."""
    if value is not None and not isinstance(value, (str, list)):
        raise ValueError(f"prompt is text or a list of chat messages, not {value!r}")
    return value


def to_flag(value: Any, name: str) -> bool | None:
    """Return a truth value."""
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{name} is True or False, not {value!r}")
    return value
