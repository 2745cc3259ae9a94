"""Prompts in, rewarded samples out: the data source and the rollout function, with slime's signatures."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

import torch

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample
from tiny.args import Args
from tiny.engine import Engine
from tiny.task import STOP, decode, encode, make_eval_datasets, make_train_dataset, reward_answer

_T = TypeVar("_T")


class DataSource:
    """Hands out groups of pending samples, epoch after epoch, each epoch in an order of its own.

    Attributes:
        buffer: groups that were given back; they are handed out again before new ones.
    """

    def __init__(self, args: Args) -> None:
        self.args = args
        self.epoch_id = 0
        self.sample_offset = 0  # prompts of this epoch already handed out
        self.sample_group_index = 0  # of the next group
        self.sample_index = 0  # of the next sample
        self.metadata: dict[str, Any] = {}
        self.buffer: list[list[Sample]] = []
        self._prompts = make_train_dataset(args)
        self._order = self._shuffled()

    def __len__(self) -> int:
        """Return the number of prompts in an epoch."""
        return len(self._prompts)

    def get_samples(self, num_samples: int) -> list[list[Sample]]:
        """Return the next ``num_samples`` groups, ``[num_samples][n_samples_per_prompt]``."""
        groups, self.buffer = self.buffer[:num_samples], self.buffer[num_samples:]
        while len(groups) < num_samples:
            groups.append(self._next_group())
        return groups

    def add_samples(self, samples: list[list[Sample]]) -> None:
        """Take back groups that were not finished."""
        self.buffer.extend(samples)

    def state_dict(self) -> dict[str, Any]:
        """Return all that decides what comes next, as plain data."""
        return {
            "epoch_id": self.epoch_id,
            "sample_offset": self.sample_offset,
            "sample_group_index": self.sample_group_index,
            "sample_index": self.sample_index,
            "metadata": copy.deepcopy(self.metadata),
            "buffer": [[copy.deepcopy(sample.to_dict()) for sample in group] for group in self.buffer],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state`` was taken."""
        self.epoch_id = state["epoch_id"]
        self.sample_offset = state["sample_offset"]
        self.sample_group_index = state["sample_group_index"]
        self.sample_index = state["sample_index"]
        self.metadata = copy.deepcopy(state["metadata"])
        self.buffer = [[Sample.from_dict(copy.deepcopy(data)) for data in group] for group in state["buffer"]]
        self._order = self._shuffled()

    def save(self, rollout_id: int) -> None:
        """Write the state beside the checkpoint of this step."""
        path = self._path(rollout_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), path)

    def load(self, rollout_id: int | None = None) -> None:
        """Go on behind the checkpoint of this step; -1 or None is the beginning."""
        if rollout_id is not None and rollout_id >= 0:
            self.load_state_dict(torch.load(self._path(rollout_id), weights_only=True))

    def _next_group(self) -> list[Sample]:
        if self.sample_offset == len(self._prompts):
            self.epoch_id, self.sample_offset = self.epoch_id + 1, 0
            self._order = self._shuffled()
        prompt = self._prompts[self._order[self.sample_offset]]
        group = [copy.deepcopy(prompt) for _ in range(self.args.n_samples_per_prompt)]
        for sample in group:
            sample.group_index, sample.index = self.sample_group_index, self.sample_index
            self.sample_index += 1
        self.sample_group_index += 1
        self.sample_offset += 1
        return group

    def _shuffled(self) -> list[int]:
        order = list(range(len(self._prompts)))
        random.Random(f"{self.args.seed}/{self.epoch_id}").shuffle(order)
        return order

    def _path(self, rollout_id: int) -> Path:
        if self.args.save is None:
            raise ValueError("no checkpoint directory; set args.save")
        return Path(self.args.save) / "rollout" / f"global_dataset_state_dict_{rollout_id}.pt"


@overload
def generate_rollout(
    args: Args, rollout_id: int, data_source: DataSource, evaluation: Literal[False] = False
) -> RolloutFnTrainOutput: ...
@overload
def generate_rollout(
    args: Args, rollout_id: int, data_source: DataSource, evaluation: Literal[True]
) -> RolloutFnEvalOutput: ...
def generate_rollout(
    args: Args, rollout_id: int, data_source: DataSource, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """Return one rollout, generated and rewarded: what ``--rollout-function-path`` names.

    Groups that the data source hands out finished stay as they are.

    Args:
        args: the settings; ``args.engine`` generates.
        rollout_id: number of the training step.
        data_source: where the training prompts come from. Evals have datasets of their own.
        evaluation: answer the held-out prompts greedily instead.
    """
    if evaluation:
        return eval_rollout(args)
    groups = data_source.get_samples(args.rollout_batch_size)
    pending = [group for group in groups if any(sample.reward is None for sample in group)]
    for wave in _batched(pending, max(1, args.server_concurrency // args.n_samples_per_prompt)):
        generate_groups(args, wave)
    flat = [sample for group in groups for sample in group]
    decided = sum(len({sample.get_reward_value(args) for sample in group}) == 1 for group in groups)
    return RolloutFnTrainOutput(
        groups,
        metrics={
            **_summary(args, flat),
            "zero_std_ratio": decided / len(groups),  # groups that teach nothing: all answers equally good
        },
    )


def eval_rollout(args: Args) -> RolloutFnEvalOutput:
    """Return greedy answers to every eval dataset, in slime's shape, with ``index`` from 0 in each."""
    data: dict[str, dict[str, Any]] = {}
    metrics: dict[str, float] = {}
    for name, samples in make_eval_datasets(args).items():
        for index, sample in enumerate(samples):
            sample.index = index
        for wave in _batched(samples, args.server_concurrency):
            _answer(args, wave, noise=None)
        data[name] = {
            "rewards": [sample.reward for sample in samples],
            "truncated": [sample.status is Sample.Status.TRUNCATED for sample in samples],
            "samples": samples,
        }
        metrics |= {f"{name}/{key}": value for key, value in _summary(args, samples).items()}
    return RolloutFnEvalOutput(data, metrics=metrics)


def generate_groups(args: Args, groups: Sequence[list[Sample]]) -> None:
    """Answer and reward the samples of ``groups``, in place.

    The random numbers of a group follow from the seed and its ``group_index``: a group generated
    again, alone or in other company, draws the same ones.
    """
    noise = [_engine(args).draw_noise(_seed(args, group), len(group)) for group in groups]
    _answer(args, [sample for group in groups for sample in group], torch.cat(noise))


def _answer(args: Args, samples: Sequence[Sample], noise: torch.Tensor | None) -> None:
    engine = _engine(args)
    prompts = [encode(str(sample.prompt)) for sample in samples]
    for sample, prompt, generation in zip(samples, prompts, engine.generate(prompts, noise), strict=True):
        sample.tokens = prompt + generation.tokens
        sample.response = decode(generation.tokens).removesuffix(STOP)
        sample.response_length = len(generation.tokens)
        sample.rollout_log_probs = generation.log_probs
        sample.loss_mask = [1] * len(generation.tokens)
        sample.weight_versions = [str(engine.weight_version)]
        sample.status = Sample.Status.COMPLETED if generation.stopped else Sample.Status.TRUNCATED
        reward_answer(sample)


def _engine(args: Args) -> Engine:
    if args.engine is None:
        raise ValueError("no engine to generate with; set args.engine")
    return args.engine


def _seed(args: Args, group: list[Sample]) -> int:
    assert group[0].group_index is not None  # the data source numbers every group
    return args.seed * 1_000_003 + group[0].group_index  # a prime: the groups of two seeds do not meet early


def _summary(args: Args, samples: Sequence[Sample]) -> dict[str, float]:
    n = len(samples)
    return {
        "reward": sum(sample.get_reward_value(args) for sample in samples) / n,
        "accuracy": sum(sample.metadata["correct"] for sample in samples) / n,
        "truncated_ratio": sum(sample.status is Sample.Status.TRUNCATED for sample in samples) / n,
        "response_length": sum(sample.response_length for sample in samples) / n,
    }


def _batched(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
