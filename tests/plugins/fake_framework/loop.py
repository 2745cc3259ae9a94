"""The default rollout function: over-sampling, a dynamic filter, partial rollout, fan-out, group rewards."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from slime_store.types import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample
from tests.plugins.fake_framework.engine import engine, generate, is_kept, reward_of
from tests.plugins.fake_framework.ledger import leaves, note_filtered, note_produced


async def generate_and_rm(args: Namespace, sample: Sample) -> Sample | list[Sample]:
    if sample.status in (Sample.Status.COMPLETED, Sample.Status.TRUNCATED):
        return sample
    if engine.aborted:
        sample.status = Sample.Status.ABORTED
        return sample
    result = await generate(args, sample)
    for leaf in leaves(result):
        if leaf.status is not Sample.Status.ABORTED and not args.group_rm:
            leaf.reward = reward_of(leaf.tokens)
    return result


async def generate_and_rm_group(
    args: Namespace, group: list[Sample], sampling_params: dict[str, Any], evaluation: bool = False
) -> list[Any]:
    if engine.aborted:
        for sample in group:
            if sample.status is Sample.Status.PENDING:
                sample.status = Sample.Status.ABORTED
        return group
    results = await asyncio.gather(*(generate_and_rm(args, sample) for sample in group))
    if args.group_rm and not engine.aborted:
        for leaf in leaves(results):
            leaf.reward = reward_of(leaf.tokens)
    return list(results)


def passes_filter(args: Namespace, group: list[Any]) -> bool:
    if not args.dynamic_filter or is_kept([leaf.reward for leaf in leaves(group)]):
        return True
    note_filtered(args, group)
    return False


async def _rollout(args: Namespace, get_samples: Callable[[int], Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return (kept, given back, dropped by the loop)."""
    pending: set[asyncio.Task[list[Any]]] = set()
    kept: list[Any] = []
    unused: list[Any] = []
    outstanding = 0
    while len(kept) < args.rollout_batch_size:
        while outstanding < args.rollout_batch_size:
            groups = get_samples(args.over_sampling_batch_size)
            outstanding += len(groups)
            pending |= {asyncio.create_task(generate_and_rm_group(args, group, {})) for group in groups}
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for group in sorted((task.result() for task in done), key=first_index):
            if not passes_filter(args, group):
                outstanding -= 1
            elif len(kept) < args.rollout_batch_size:
                kept.append(group)
            else:
                unused.append(group)
    engine.aborted = True
    late = list(await asyncio.gather(*pending))
    engine.aborted = False
    kept.sort(key=first_index)
    return (kept, late, unused) if args.partial_rollout else (kept, [], unused + late)


def first_index(group: list[Any]) -> int:
    return int(leaves(group)[0].index or 0)


def generate_rollout(args: Namespace, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    if evaluation:
        return _evaluate(args)
    kept, given_back, dropped = asyncio.run(_rollout(args, data_source.get_samples))
    if given_back:
        data_source.add_samples(given_back)
    note_produced(args, rollout_id, kept, dropped)
    return RolloutFnTrainOutput(kept, {"kept": len(kept)})


def _evaluate(args: Namespace) -> RolloutFnEvalOutput:
    samples = [Sample(index=i, prompt=f"eval {i}") for i in range(3)]
    asyncio.run(_eval_all(args, samples))
    data = {
        "rewards": [sample.reward for sample in samples],
        "truncated": [sample.status is Sample.Status.TRUNCATED for sample in samples],
        "samples": samples,
    }
    return RolloutFnEvalOutput({"small": data}, None)


async def _eval_all(args: Namespace, samples: list[Sample]) -> None:
    await asyncio.gather(*(generate_and_rm(args, sample) for sample in samples))
