"""A rollout function and an eval function whose results a test gives beforehand."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from slime_store.types import Sample

PATH = f"{__name__}.rollout"

_results: dict[tuple[bool, int], Any] = {}
calls: list[tuple[bool, int]] = []


def reset() -> None:
    _results.clear()
    calls.clear()


def will_return(rollout_id: int, output: Any, *, evaluation: bool = False) -> None:
    _results[evaluation, rollout_id] = output


def rollout(args: Namespace, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """The function that the plug-in wraps."""
    calls.append((evaluation, rollout_id))
    return _results[evaluation, rollout_id]


def finished(number: Any, index: int, **fields: Any) -> Sample:
    """A generated and rewarded sample."""
    sample = Sample(group_index=number, index=index, prompt=f"prompt {number}", tokens=[1, 2, index])
    sample.response, sample.response_length, sample.reward = "ab", 2, float(index % 2)
    sample.status, sample.weight_versions = Sample.Status.COMPLETED, ["1"]
    for name, value in fields.items():
        setattr(sample, name, value)
    return sample


def group(number: int, size: int = 2, **fields: Any) -> list[Sample]:
    return [finished(number, number * size + i, **fields) for i in range(size)]


def dataset(n: int = 2) -> dict[str, Any]:
    samples = [finished(None, i) for i in range(n)]
    return {"rewards": [s.reward for s in samples], "truncated": [False] * n, "samples": samples}
