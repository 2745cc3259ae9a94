"""What the trainer was handed, kept aside in memory to compare the store with."""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Run, Sample
from slime_store.testing import assert_same
from tiny.events import Event


@dataclass
class Copies:
    """Every output, as it came through the pipe from the training process; of one that came twice, the later.

    Attributes:
        train: by rollout id.
        evals: by rollout id.
    """

    train: dict[int, RolloutFnTrainOutput] = field(default_factory=dict)
    evals: dict[int, RolloutFnEvalOutput] = field(default_factory=dict)

    def note(self, event: Event) -> None:
        """Keep the output of an event that has one."""
        if event.output is not None and event.rollout_id is not None:
            by_id: dict[int, Any] = self.train if event.kind == "rollout finished" else self.evals
            by_id[event.rollout_id] = event.output

    @property
    def groups(self) -> list[list[Sample]]:
        """All groups of samples, those of the evals as well."""
        trained = [group for output in self.train.values() for group in output.samples]
        return trained + [dataset["samples"] for output in self.evals.values() for dataset in output.data.values()]

    def dump_bytes(self) -> int:
        """Return what slime's own dumps of the same samples take, one ``torch.save`` per rollout."""
        rollouts = [output.samples for output in self.train.values()]
        rollouts += [[data["samples"] for data in output.data.values()] for output in self.evals.values()]
        return sum(_dump_bytes(groups) for groups in rollouts)

    def assert_loads_back(self, run: Run) -> None:
        """Load everything from the store and compare every value and every type.

        Raises:
            AssertionError: something is missing or differs; the message says where.
        """
        recorded = {(info.kind, info.rollout_id) for info in run.rollouts()}
        expected = {("train", n) for n in self.train} | {("eval", n) for n in self.evals}
        assert recorded == expected, f"recorded and generated rollouts differ: {sorted(recorded ^ expected)}"
        for rollout_id, train_output in self.train.items():
            given = replace(train_output, metrics=_own_metrics(train_output.metrics))
            assert_same(run.load_train(rollout_id), given)
        for rollout_id, eval_output in self.evals.items():
            assert_same(run.load_eval(rollout_id), replace(eval_output, metrics=_own_metrics(eval_output.metrics)))


def _own_metrics(metrics: dict[str, Any] | None) -> dict[str, Any]:
    """Return the rollout function's metrics, without the counters that the store adds to them."""
    return {name: value for name, value in (metrics or {}).items() if not name.startswith("store/")}


def _dump_bytes(groups: list[list[Sample]]) -> int:
    file = io.BytesIO()
    torch.save({"samples": [sample.to_dict() for group in groups for sample in group]}, file)
    return file.tell()
