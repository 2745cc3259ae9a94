"""Which samples a question is about."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import index
from typing import Any

from slime_store.types.sample import Sample

_KINDS = ("train", "eval")
_STATUS_WORDS = tuple(status.value for status in Sample.Status)
_SLICE = re.compile(r"(?P<start>\d*)(?P<slice>:(?P<stop>\d*))?", re.ASCII)
_NO_END = 2**63 - 1  # the largest id a database column holds


@dataclass(frozen=True, init=False)
class SampleFilter:
    """Samples that meet every condition given; a condition left at None is not applied.

    Data only. The constructor takes what is convenient to write, checks it, and leaves one form of
    each condition in the attributes. An empty ``rollout_ids`` or ``status`` matches nothing.

    Attributes:
        kind: ``"train"`` or ``"eval"``.
        rollout_ids: ids in ascending order, each once; or an ascending range with any step. Given as
            one id, a range, an iterable of ids, or text: ``"7"``, or ``"10:20"`` for 10 to 19 as in a
            Python slice, where either end may be left out.
        attempt: this attempt only, not each rollout's newest complete one.
        dataset: name of an eval dataset.
        status: words, e.g. ``("truncated", "aborted")``. Given as a word, a ``Status`` (slime's or
            ours), or an iterable of these.
        weight_version: samples that this version generated any part of. A label, compared for
            equality: ``"3"`` is not ``"13"``. Numbers are taken as their label.
        reward_min: reward at least this. A reward that is NaN, None or no number meets no bound.
        reward_max: reward at most this.
        reward_key: entry of a dict reward that the bounds look at; a tuple leads into nested dicts.
        group_index: group, by the number slime gave it.
        metadata: top-level metadata keys and the values they must have; of a tuple or set, itself or any one of its
            values.
        text: text that the response must contain, as it is written.
        prompt: the whole prompt, text or chat messages.
        removed: whether ``remove_sample`` is set.
    """

    kind: str | None
    rollout_ids: tuple[int, ...] | range | None
    attempt: int | None
    dataset: str | None
    status: tuple[str, ...] | None
    weight_version: str | None
    reward_min: float | None
    reward_max: float | None
    reward_key: str | tuple[str, ...] | None
    group_index: int | None
    metadata: dict[str, Any] | None
    text: str | None
    prompt: str | list[Any] | None
    removed: bool | None

    def __init__(
        self,
        kind: str | None = None,
        rollout_ids: int | str | range | Iterable[int] | None = None,
        attempt: int | None = None,
        dataset: str | None = None,
        status: str | Enum | Iterable[str | Enum] | None = None,
        weight_version: str | int | None = None,
        reward_min: float | None = None,
        reward_max: float | None = None,
        reward_key: str | Sequence[str] | None = None,
        group_index: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        text: str | None = None,
        prompt: str | list[Any] | None = None,
        removed: bool | None = None,
    ) -> None:
        """Check the conditions and bring each into the form that the class documents.

        Raises:
            ValueError: a condition that nothing can meet or that is not of a kind listed above.
        """
        low, high = _to_bound(reward_min, "reward_min"), _to_bound(reward_max, "reward_max")
        if low is not None and high is not None and low > high:
            raise ValueError(f"reward_min {low!r} is above reward_max {high!r}")
        conditions = {
            "kind": _to_kind(kind),
            "rollout_ids": _to_rollout_ids(rollout_ids),
            "attempt": _to_count(attempt, "attempt", least=1),
            "dataset": _to_text(dataset, "dataset"),
            "status": _to_status_words(status),
            "weight_version": _to_label(weight_version),
            "reward_min": low,
            "reward_max": high,
            "reward_key": _to_reward_key(reward_key),
            "group_index": _to_count(group_index, "group_index"),
            "metadata": _to_metadata(metadata),
            "text": _to_text(text, "text"),
            "prompt": _to_prompt(prompt),
            "removed": _to_flag(removed, "removed"),
        }
        for name, value in conditions.items():
            object.__setattr__(self, name, value)


def _to_kind(value: Any) -> str | None:
    if value is not None and value not in _KINDS:
        raise ValueError(f"kind is 'train' or 'eval', not {value!r}")
    return value  # type: ignore[no-any-return]


def _to_integer(value: Any, name: str) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{name} is a whole number, not {value!r}")
    try:
        return index(value)  # takes numpy integers, refuses floats
    except TypeError:
        raise ValueError(f"{name} is a whole number, not {value!r}") from None


def _to_count(value: Any, name: str, *, least: int | None = None) -> int | None:
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


def _to_rollout_ids(value: Any) -> tuple[int, ...] | range | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _parse_rollout_ids(value)
    if isinstance(value, range):
        rising = value if value.step > 0 else value[::-1]
        for end in (*rising[:1], *rising[-1:]):
            _to_column(end, "every id in rollout_ids")
        return rising
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


def _to_status_words(value: Any) -> tuple[str, ...] | None:
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


def _to_label(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(_to_integer(value, "a weight_version that is no label"))


def _to_bound(value: Any, name: str) -> float | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):  # NaN compares with nothing, so it would quietly match no sample
        raise ValueError(f"{name} is a number, not {value!r}")
    return number


def _to_reward_key(value: Any) -> str | tuple[str, ...] | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, Sequence) or not value or not all(isinstance(part, str) for part in value):
        raise ValueError(f"reward_key is a key or a path of keys, not {value!r}")
    return tuple(value) if len(value) > 1 else str(value[0])


def _to_metadata(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"metadata is a dict from key (text) to wanted value, not {value!r}")
    return dict(value)


def _to_text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is text, not {value!r}")
    if name == "text" and value == "":
        raise ValueError("text is empty, which every response contains; leave it out")
    return value


def _to_prompt(value: Any) -> str | list[Any] | None:
    if value is not None and not isinstance(value, (str, list)):
        raise ValueError(f"prompt is text or a list of chat messages, not {value!r}")
    return value


def _to_flag(value: Any, name: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{name} is True or False, not {value!r}")
    return value
