"""Rollout outputs, and the walk over nested samples."""

from __future__ import annotations

from typing import Any

import pytest

from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample, iter_leaf_samples

A, B, C = Sample(index=0), Sample(index=1), Sample(index=2)
NO_LIST = {"a": [B]}


def test_outputs_take_their_data_and_have_no_metrics_by_default() -> None:
    train = RolloutFnTrainOutput([[A]])
    evaluation = RolloutFnEvalOutput({"gsm8k": {"samples": [A]}}, {"gsm8k_accuracy": 0.87})
    assert (train.samples, train.metrics) == ([[A]], None)
    assert (list(evaluation.data), evaluation.metrics) == (["gsm8k"], {"gsm8k_accuracy": 0.87})


@pytest.mark.parametrize(
    ("tree", "leaves"),
    [
        ([], []),
        ([[], [[]]], []),
        (A, [A]),
        ([A, B], [A, B]),
        ([[A], [B, C]], [A, B, C]),
        ([[], [A, [B, (C,)]]], [A, B, C]),
        (([A], "x", NO_LIST, None), [A, "x", NO_LIST, None]),
    ],
)
def test_the_walk_yields_the_leaves_of_any_nesting_in_order(tree: Any, leaves: list[Any]) -> None:
    found = list(iter_leaf_samples(tree))
    assert len(found) == len(leaves)
    assert all(one is other for one, other in zip(found, leaves, strict=True))


def test_the_walk_goes_as_deep_as_the_nesting() -> None:
    tree: Any = [A]
    for _ in range(100_000):
        tree = [tree]
    assert list(iter_leaf_samples(tree)) == [A]
