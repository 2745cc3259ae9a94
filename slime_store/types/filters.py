"""Which samples a question is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from slime_store.types.conditions import (
    to_bound,
    to_count,
    to_datasets,
    to_flag,
    to_kind,
    to_label,
    to_metadata,
    to_prompt,
    to_prompt_id,
    to_reward_key,
    to_rollout_ids,
    to_status_words,
    to_text,
    to_version_rule,
)


@dataclass(frozen=True, init=False)
class SampleFilter:
    """Samples that meet every condition given; a condition left at None is not applied.

    Data only. The constructor takes what is convenient to write, checks it, and leaves one form of
    each condition in the attributes. An empty ``rollout_ids``, ``dataset`` or ``status`` matches nothing. The same
    filter means the same for ``iter_samples``, for every data frame and on every database.

    Attributes:
        kind: ``"train"`` or ``"eval"``.
        rollout_ids: ids in ascending order, each once; or an ascending range with any step. Given as
            one id, a range, an iterable of ids, or text: ``"7"``, or ``"10:20"`` for 10 to 19 as in a
            Python slice, where either end may be left out.
        attempt: this attempt only, not each rollout's newest complete one.
        dataset: name of an eval dataset, or a tuple of names.
        status: words, e.g. ``("truncated", "aborted")``. Given as a word, a ``Status`` (slime's or
            ours), or an iterable of these.
        weight_version: samples that this version generated. A label, compared for equality: ``"3"`` is not ``"13"``.
            Numbers are taken as their label. Samples of an eval that name no version have the one that the eval was
            recorded with.
        reward_min: reward at least this. A reward that is NaN, None or no number meets no bound.
        reward_max: reward at most this.
        reward_key: entry of a dict reward that the bounds look at, and data frames show as ``reward``; a tuple leads
            into nested dicts.
        group_index: group, by the number slime gave it.
        metadata: top-level metadata keys and the values they must have; of a tuple or set, itself or any one of its
            values. Values are equal as in Python (1 is 1.0, NaN is nothing, a list is no tuple), but True is not 1. A
            NumPy scalar is the number or text that it equals. An array or a tensor equals only another of the same
            shape and with equal elements; nothing is broadcast. Inside lists and dicts the same holds.
        text: text that the response or the prompt contains, as it is written: case counts, and nothing is a pattern.
            Scans the response, and the prompt when it is text; in a prompt of chat messages each text in it (roles,
            contents, tool calls), but no key. Reads the texts of all samples that meet the other conditions.
        prompt: the whole prompt, text or chat messages.
        removed: whether ``remove_sample`` is set.
        weight_version_rule: of a sample that several versions generated, ``"any"`` of them may be ``weight_version``,
            or its ``"first"`` or its ``"last"`` must be.
        prompt_id: id of the prompt as data frames show it: 16 hex digits that its content decides, the same in every
            store.
        response_length_min: ``response_length`` at least this; a sample without one meets no bound.
        response_length_max: ``response_length`` at most this.
    """

    kind: str | None
    rollout_ids: tuple[int, ...] | range | None
    attempt: int | None
    dataset: str | tuple[str, ...] | None
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
    weight_version_rule: str
    prompt_id: str | None
    response_length_min: int | None
    response_length_max: int | None

    def __init__(
        self,
        kind: str | None = None,
        rollout_ids: int | str | range | Iterable[int] | None = None,
        attempt: int | None = None,
        dataset: str | Iterable[str] | None = None,
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
        *,
        weight_version_rule: str = "any",
        prompt_id: str | None = None,
        response_length_min: int | None = None,
        response_length_max: int | None = None,
    ) -> None:
        """Check the conditions and bring each into the form that the class documents.

        Raises:
            ValueError: a condition that nothing can meet or that is not of a kind listed above.
        """
        low, high = to_bound(reward_min, "reward_min"), to_bound(reward_max, "reward_max")
        if low is not None and high is not None and low > high:
            raise ValueError(f"reward_min {low!r} is above reward_max {high!r}")
        shortest = to_count(response_length_min, "response_length_min")
        longest = to_count(response_length_max, "response_length_max")
        if shortest is not None and longest is not None and shortest > longest:
            raise ValueError(f"response_length_min {shortest} is above response_length_max {longest}")
        conditions = {
            "kind": to_kind(kind),
            "rollout_ids": to_rollout_ids(rollout_ids),
            "attempt": to_count(attempt, "attempt", least=1),
            "dataset": to_datasets(dataset),
            "status": to_status_words(status),
            "weight_version": to_label(weight_version),
            "reward_min": low,
            "reward_max": high,
            "reward_key": to_reward_key(reward_key),
            "group_index": to_count(group_index, "group_index"),
            "metadata": to_metadata(metadata),
            "text": to_text(text, "text"),
            "prompt": to_prompt(prompt),
            "removed": to_flag(removed, "removed"),
            "weight_version_rule": to_version_rule(weight_version_rule),
            "prompt_id": to_prompt_id(prompt_id),
            "response_length_min": shortest,
            "response_length_max": longest,
        }
        for name, value in conditions.items():
            object.__setattr__(self, name, value)
