"""The user's own functions, by path: the same for slime and miles, over the fake engine."""

from __future__ import annotations

import contextlib
import json
from argparse import Namespace
from collections.abc import AsyncIterator
from typing import Any

from tests.plugins.fake_framework.engine import engine, generate, is_kept, response_of, reward_of
from tests.plugins.fake_framework.ledger import leaves, note_filtered, note_finished

HERE = __name__


async def generate_for_slime(args: Namespace, sample: Any, sampling_params: dict[str, Any]) -> Any:
    from slime.rollout.sglang_rollout import GenerateState

    return await generate(args, sample, lambda: bool(GenerateState(args).aborted))


async def generate_for_miles(input: Any) -> Any:
    from miles.rollout.base_types import GenerateFnOutput

    return GenerateFnOutput(await generate(input.args, input.sample, lambda: bool(input.state.aborted)))


async def generate_for_older_miles(args: Namespace, sample: Any, sampling_params: dict[str, Any]) -> Any:
    from miles.rollout.sglang_rollout import GenerateState

    return await generate(args, sample, lambda: bool(GenerateState(args).aborted))


async def reward(args: Namespace, sample: Any, **_: Any) -> Any:
    """Of one sample, or of a whole group."""
    if isinstance(sample, list):
        return [reward_of(leaf.tokens) for leaf in leaves(sample)]
    return reward_of(sample.tokens)


def dynamic_filter(args: Namespace, group: Any, **_: Any) -> bool:
    if is_kept([leaf.reward for leaf in leaves(group)]):
        return True
    note_filtered(args, group)
    return False


def note_all(args: Namespace, all_samples: list[Any], data_source: Any) -> None:
    note_finished(args, args.rollout_id, all_samples)


class StreamingClient:
    """Answers slime's streaming requests: what a stream has said so far, one token more in each chunk."""

    @contextlib.asynccontextmanager
    async def stream(self, method: str, url: str, *, json: dict[str, Any], headers: Any) -> AsyncIterator[Any]:
        yield _Stream(json["input_ids"])


class _Stream:
    def __init__(self, so_far: list[int]) -> None:
        self._so_far = so_far

    def raise_for_status(self) -> None:
        pass

    async def aiter_lines(self) -> AsyncIterator[str]:
        import asyncio

        tokens = response_of("streamed", self._so_far[0])[len(self._so_far) - 3 :]
        for n in range(1, len(tokens) + 1):
            await asyncio.sleep(0)
            engine.count()
            meta: dict[str, Any] = {"output_token_logprobs": [[-0.5, token, None] for token in tokens[:n]]}
            if n == len(tokens):
                meta |= {"finish_reason": {"type": "stop"}, "weight_version": "1"}
            yield "data: " + json.dumps({"text": "x" * n, "meta_info": meta})
        yield "data: [DONE]"
