"""What was generated, kept aside in memory to compare the store with."""

from __future__ import annotations

import copy
import io
from dataclasses import dataclass, field
from typing import Any

import torch

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Run, Sample
from slime_store.testing import assert_same


@dataclass
class Control:
    """Deep copies of every output, taken before it was recorded.

    Attributes:
        train: by rollout id.
        evals: by rollout id.
        n_samples: samples in all of them.
        pt_bytes: what slime's own dumps of the same samples take, one ``torch.save`` per rollout.
    """

    train: dict[int, RolloutFnTrainOutput] = field(default_factory=dict)
    evals: dict[int, RolloutFnEvalOutput] = field(default_factory=dict)
    n_samples: int = 0
    pt_bytes: int = 0

    def keep_train(self, rollout_id: int, output: RolloutFnTrainOutput) -> None:
        """Copy a training rollout."""
        self.train[rollout_id] = copy.deepcopy(output)
        self._measure(rollout_id, output.samples)

    def keep_eval(self, rollout_id: int, output: RolloutFnEvalOutput) -> None:
        """Copy an eval."""
        self.evals[rollout_id] = copy.deepcopy(output)
        self._measure(rollout_id, [dataset["samples"] for dataset in output.data.values()])

    def assert_loads_back(self, run: Run) -> None:
        """Load everything from the store and compare every value and every type.

        Raises:
            AssertionError: something is missing or differs; the message says where.
        """
        recorded = {(info.kind, info.rollout_id) for info in run.rollouts()}
        expected = {("train", n) for n in self.train} | {("eval", n) for n in self.evals}
        assert recorded == expected, f"recorded and generated rollouts differ: {sorted(recorded ^ expected)}"
        for rollout_id, train_output in self.train.items():
            assert_same(run.load_train(rollout_id), train_output)
        for rollout_id, eval_output in self.evals.items():
            assert_same(run.load_eval(rollout_id), eval_output)

    def _measure(self, rollout_id: int, groups: list[list[Sample]]) -> None:
        dump: dict[str, Any] = {
            "rollout_id": rollout_id,
            "samples": [sample.to_dict() for group in groups for sample in group],
        }
        file = io.BytesIO()
        torch.save(dump, file)
        self.pt_bytes += file.tell()
        self.n_samples += len(dump["samples"])
