"""What of a filter decides which rows and which reward a frame shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slime_store.dataframes.statistics import Array
from slime_store.dataframes.table import SampleTable
from slime_store.repositories.questions.conditions import path_of
from slime_store.repositories.questions.fields import Field, HasEntry
from slime_store.types import SampleFilter


def only_eval(where: SampleFilter | None) -> SampleFilter:
    """Return the filter without train samples; a filter for these finds nothing."""
    where = where or SampleFilter()
    if where.kind == "train":
        where = replace(where, rollout_ids=())
    return replace(where, kind="eval")


def reward_field(where: SampleFilter) -> Field:
    """Return the field that holds the reward: the number, or the entry that the filter's ``reward_key`` names."""
    return "reward" if where.reward_key is None else path_of(where.reward_key)


def reward_fields(where: SampleFilter) -> list[Field]:
    """Return what must be read to tell numbers, NaN and nothing apart."""
    if where.reward_key is None:
        return ["reward", "reward_type"]
    path = path_of(where.reward_key)
    return [path, HasEntry(path)]


def none_and_nan(table: SampleTable, where: SampleFilter) -> tuple[Array, Array]:
    """Return masks of the samples whose reward is None and of those whose reward is NaN.

    With ``reward_key``, None means that there is no number at that key.
    """
    if where.reward_key is None:
        words = np.asarray(table.values("reward_type"), dtype=object)
        return words == "none", words == "nan"
    path = path_of(where.reward_key)
    there = np.fromiter((value is not None for value in table.values(HasEntry(path))), bool, table.n_rows)
    return ~there, there & np.isnan(table.floats(path))
