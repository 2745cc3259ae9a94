"""Rewards by weight version computed from the loaded samples: what the aggregates are compared with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slime_store import Run, Sample
from slime_store.types.outputs import iter_leaf_samples

COLUMNS = (
    "run",
    "session",
    "kind",
    "weight_version",
    "n_samples",
    "n_rewards",
    "n_none",
    "n_nan",
    "reward_mean",
    "reward_std",
    "reward_min",
    "reward_max",
    "truncated_share",
    "response_length_mean",
    "first_rollout_id",
    "last_rollout_id",
)
VIEW = f"SELECT {', '.join(COLUMNS)} FROM v_rewards_by_weight_version"
Answer = dict[tuple[Any, ...], tuple[Any, ...]]


def told_version(rollout_id: int) -> str | None:
    """Return the version that the tests tell an eval it measures."""
    return "2" if rollout_id % 2 else None


def by_weight_version(run: Run, attribution: str, **which: Any) -> Answer:
    """Load every rollout of a run and count: {(run, session, kind, weight version): the other columns}."""
    found: dict[tuple[Any, ...], list[tuple[int, Sample]]] = {}
    for info in run.rollouts(**which):
        if info.kind == "train":
            output = run.load_train(info.rollout_id, attempt=info.attempt, sample_type=Sample).samples
        else:
            data = run.load_eval(info.rollout_id, attempt=info.attempt, sample_type=Sample).data
            output = [dataset["samples"] for dataset in data.values()]
        for sample in iter_leaf_samples(output):
            versions = sample.weight_versions
            own = {"last": versions[-1:], "first": versions[:1], "each": list(dict.fromkeys(versions))}
            told = told_version(info.rollout_id) if info.kind == "eval" else None
            for version in own[attribution] or [told]:
                found.setdefault((run.name, info.session, info.kind, version), []).append((info.rollout_id, sample))
    return {key: _answer(samples) for key, samples in found.items()}


def _answer(found: list[tuple[int, Sample]]) -> tuple[Any, ...]:
    samples = [sample for _, sample in found]
    rewards = [sample.reward for sample in samples]
    is_number = [isinstance(reward, (int, float)) for reward in rewards]
    numbers = [float(r) for r, is_one in zip(rewards, is_number, strict=True) if is_one and not math.isnan(r)]  # type: ignore[arg-type]
    lengths = [sample.response_length for sample in samples]
    ids = [rollout_id for rollout_id, _ in found]
    return (
        len(samples),
        len(numbers),
        rewards.count(None),
        sum(is_number) - len(numbers),
        *_moments(numbers),
        min(numbers, default=None),
        max(numbers, default=None),
        sum(sample.status is Sample.Status.TRUNCATED for sample in samples) / len(samples),
        math.fsum(lengths) / len(lengths),
        min(ids),
        max(ids),
    )


def _moments(numbers: list[float]) -> tuple[float | None, float | None]:
    if not numbers:
        return None, None
    if max(map(abs, numbers)) > 1e100:  # documented: beyond it nothing is summed, and infinity stays infinity
        infinite = {number for number in numbers if math.isinf(number)}
        return (infinite.pop() if len(infinite) == 1 else None), None
    std = float(np.std(np.array(numbers, np.longdouble), ddof=1)) if len(numbers) > 1 else None
    return math.fsum(numbers) / len(numbers), std


def same(found: Answer, expected: Answer) -> None:
    """Compare: integers and extremes to the digit, means to 1e-12 of the largest reward."""
    assert found.keys() == expected.keys()
    for key, answer in found.items():
        for name, got, right in zip(COLUMNS[4:], answer, expected[key], strict=True):
            where = (key, name, got, right)
            if got is None or right is None or name.startswith(("n_", "first", "last")) or math.isinf(right):
                assert got == right, where
                continue
            bounds = [abs(bound) for bound in expected[key][6:8] if bound is not None]
            scale = max(bounds, default=0.0) if name.startswith("reward") else abs(right)
            assert abs(got - right) <= 1e-12 * scale + 1e-99, where
