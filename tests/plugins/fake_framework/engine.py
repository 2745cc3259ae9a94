"""An engine without weights: what it says depends on the prompt, the sample's index and the position only.

So a sample has the same tokens however often its generation was interrupted, and every trained group can be checked.
"""

from __future__ import annotations

import asyncio
import os
import random
from argparse import Namespace
from collections.abc import Callable
from typing import Any

MAX_TOKENS = 8
CRASHED = 9
"""Exit code of a process that was made to crash."""


class Engine:
    """Of one process: counts what it generates, and ends the process without a goodbye when it is told to."""

    def __init__(self) -> None:
        self.n_generated = 0
        self.aborted = False
        self.crash_at_token: int | None = None
        self.before_crash: Callable[[], None] = lambda: None

    def count(self) -> None:
        self.n_generated += 1
        if self.n_generated == self.crash_at_token:
            self.crash()

    def crash(self) -> None:
        self.before_crash()
        os._exit(CRASHED)


engine = Engine()


def response_of(prompt: str, index: int) -> list[int]:
    rng = random.Random(f"{prompt}/{index}")
    return [rng.randrange(1000) for _ in range(rng.randint(2, MAX_TOKENS))]


def reward_of(tokens: list[int]) -> float:
    return float(sum(tokens) % 3)


def is_kept(rewards: list[float]) -> bool:
    """The dynamic filter: a group whose rewards are all zero teaches nothing."""
    return any(rewards)


async def generate(args: Namespace, sample: Any, is_aborted: Callable[[], bool] = lambda: engine.aborted) -> Any:
    """Go on with a sample, of any framework's class, until it is whole or the engine is told to abort."""
    tokens = response_of(str(sample.prompt), int(sample.index or 0))
    if not sample.tokens:
        sample.tokens = [1, 2, 3]
    sample.loss_mask = sample.loss_mask or []
    sample.rollout_log_probs = sample.rollout_log_probs or []
    while sample.response_length < len(tokens):
        await asyncio.sleep(args.token_seconds)
        if is_aborted():
            sample.status = type(sample).Status.ABORTED
            return sample
        engine.count()
        sample.tokens.append(tokens[sample.response_length])
        sample.loss_mask.append(1)
        sample.rollout_log_probs.append(-0.5)
        sample.response += "x"
        sample.response_length += 1
        sample.metadata.setdefault("turns", []).append(sample.response_length)
    sample.weight_versions.append("1")
    status = type(sample).Status
    sample.status = status.TRUNCATED if len(tokens) == MAX_TOKENS else status.COMPLETED
    return _split(sample) if args.fan_out else sample


def _split(sample: Any) -> list[Any]:
    parts: list[Any] = []
    for part in ("first", "rest"):
        twin = type(sample).from_dict(sample.to_dict())
        twin.rollout_id, twin.metadata = sample.index, {**sample.metadata, "part": part}
        parts.append(twin)
    return parts
