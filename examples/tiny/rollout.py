"""Prompts in, rewarded samples out: the rollout function, with slime's signatures."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar, overload

import torch

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample
from tiny.args import Args
from tiny.data_source import DataSource
from tiny.engine import Engine
from tiny.events import Event
from tiny.task import STOP, decode, encode, make_eval_datasets, reward_answer

_T = TypeVar("_T")


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
    """Return one rollout, generated and rewarded: what ``--rollout-function-path`` names, or what the store wraps.

    Args:
        args: the settings; ``args.engine`` generates.
        rollout_id: number of the training step.
        data_source: where the training prompts come from. Evals have datasets of their own.
        evaluation: answer the held-out prompts greedily instead.
    """
    if evaluation:
        return eval_rollout(args)
    groups = asyncio.run(_generate(args, data_source.get_samples(args.rollout_batch_size)))
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


async def generate_and_rm_group(
    args: Args, group: list[Sample], sampling_params: dict[str, Any], evaluation: bool = False
) -> list[Sample]:
    """Answer and reward one group. The store looks for a function of this name, slime's, to follow the groups.

    A group is decoded by itself, with random numbers that follow from the seed and its ``group_index``: one that is
    generated again has the same tokens and log-probs to the bit, whatever was generated before it or is beside it.
    """
    if all(sample.reward is not None for sample in group):  # given back to the data source's buffer finished
        return group
    index = _group_index(group)
    args.tell(Event("group begun", group_index=index))
    seed = args.seed * 1_000_003 + index  # a prime: the groups of two seeds do not meet early
    _answer(args, group, _engine(args).draw_noise(seed, len(group)))
    args.tell(Event("group generated", group_index=index, tokens=_lengths(group)))
    return group


async def _generate(args: Args, groups: list[list[Sample]]) -> list[list[Sample]]:
    finished = []
    for group in groups:
        finished.append(await generate_and_rm_group(args, group, {}))
        args.tell(Event("group finished", group_index=_group_index(group), tokens=_lengths(finished[-1])))
    return finished


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


def _group_index(group: list[Sample]) -> int:
    assert group[0].group_index is not None  # the data source numbers every group
    return group[0].group_index


def _lengths(group: list[Sample]) -> tuple[int, ...]:
    return tuple(sample.response_length for sample in group)


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
