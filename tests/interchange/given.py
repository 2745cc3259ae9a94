"""What tests of stores that are imported record, and look at."""

from __future__ import annotations

from typing import Any

from slime_store import Run, Sample
from slime_store.dataframes import weight_versions_df


def one_sample(index: int, label: str, reward: float) -> list[Sample]:
    """A group of one sample."""
    return [Sample(index=index, group_index=index, response="x", reward=reward, weight_versions=[label])]


def by_version(run: Run) -> list[tuple[Any, ...]]:
    """Each weight version's session, label, number of samples and mean reward."""
    frame = weight_versions_df(run)[["session", "weight_version", "n_samples", "reward_mean"]]
    return sorted(frame.itertuples(index=False, name=None))
