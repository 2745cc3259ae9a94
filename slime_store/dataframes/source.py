"""What of a filter decides which rows and which reward a frame shows."""

from __future__ import annotations

from dataclasses import replace

from slime_store.repositories.questions.conditions import path_of
from slime_store.repositories.questions.fields import Field
from slime_store.types import SampleFilter


def reward_field(where: SampleFilter) -> Field:
    """Return the field that holds the reward: the number, or the entry that the filter's ``reward_key`` names."""
    return "reward" if where.reward_key is None else path_of(where.reward_key)


def only_eval(where: SampleFilter | None) -> SampleFilter:
    """Return the filter without train samples; a filter for these finds nothing."""
    where = where or SampleFilter()
    if where.kind == "train":
        where = replace(where, rollout_ids=())
    return replace(where, kind="eval")
