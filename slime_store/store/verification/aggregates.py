"""Aggregates of a rollout: the same as its samples say."""

from __future__ import annotations

from typing import Any

from slime_store.store.verification.stored import RolloutCheck

_WANTED = {"last": "last_weight_version_pk", "first": "first_weight_version_pk"}


def check_aggregates(check: RolloutCheck) -> None:
    """Compare the numbers kept by weight version with those of the samples; sums of floats are not compared."""
    row = check.row
    if row is None or row.status != "complete" or not check.samples or not check.is_whole:
        return
    stored = check.read("its aggregates", lambda rows: rows.aggregates(check.pk))
    if stored is None:
        return
    for attribution, column in _WANTED.items():
        there = {each[1]: tuple(each[2:]) for each in stored if each[0] == attribution}
        if there != _computed(check, column):
            check.add("aggregates_disagree", f"what is kept of the {attribution} weight versions is not the samples'")


def _computed(check: RolloutCheck, column: str) -> dict[int | None, tuple[Any, ...]]:
    by_version: dict[int | None, list[Any]] = {}
    for sample in check.samples or ():
        by_version.setdefault(sample[column], []).append(sample)
    computed = {}
    for version, samples in by_version.items():
        rewards = [sample["reward"] for sample in samples if sample["reward"] is not None]
        types = [sample["reward_type"] for sample in samples]
        truncated = sum(sample["status"] == "truncated" for sample in samples)
        ends = (min(rewards, default=None), max(rewards, default=None))
        computed[version] = (len(samples), len(rewards), types.count("none"), types.count("nan"), truncated, *ends)
    return computed
