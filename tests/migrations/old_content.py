"""What the committed stores of older schemas hold. Runs with the slime_store of that time as well as with today's."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from PIL import Image

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample, SampleStore

RUN = "old"


def _sample(rng: np.random.Generator, n: int, **fields: Any) -> Sample:
    sample = Sample(
        prompt=[{"role": "user", "content": f"what is {n} + 1?"}] if n % 2 else f"what is {n} + 1?",
        response=f"it is {n + 1}\x00\ud83d" if n == 3 else f"it is {n + 1}",
        label=str(n + 1),
        tokens=[int(token) for token in rng.integers(0, 150_000, 8 + n)],
        response_length=4,
        reward={"score": 1.0, "why": {"n": n}} if n == 2 else [1.0, math.nan, None, 0.25][n % 4],
        loss_mask=[1, 0, 1, 1] if n % 2 else None,
        rollout_log_probs=[float(value) for value in np.float32(-rng.random(4))],
        weight_versions=["1", "2"] if n == 1 else ["1"],
        status=Sample.Status.TRUNCATED if n == 4 else Sample.Status.COMPLETED,
        metadata={"source": "math", "n": n, "when": datetime(2025, 1, n + 1, tzinfo=timezone.utc), 7: (1, {2})},
    )
    for name, value in fields.items():
        setattr(sample, name, value)
    return sample


def train(rollout_id: int) -> RolloutFnTrainOutput:
    """Return a training rollout with something of every kind, ragged and split in segments."""
    rng = np.random.default_rng(rollout_id)
    image = Image.frombytes("P", (128, 128), bytes(range(128)) * 128)
    image.putpalette(bytes(range(256)) * 3)
    shared = torch.arange(2000, dtype=torch.float32).reshape(4, 500).to(torch.bfloat16)
    first = [_sample(rng, n, index=n, group_index=0, multimodal_inputs={"images": [image]}) for n in range(4)]
    for sample in first:
        sample.multimodal_train_inputs = {"pixel_values": shared, "note": "x"}
    routing = rng.integers(0, 8, (11, 2, 2)).astype(np.int32)
    second: list[Any] = [
        [_sample(rng, 4, rollout_id=9), _sample(rng, 5, rollout_id=9)],
        [_sample(rng, 6, rollout_routed_experts=routing)],
    ]
    third = _sample(rng, 7, tool_calls=Decimal("1.50"), remove_sample=True)
    groups: list[Any] = [first, second, [third]]
    return RolloutFnTrainOutput(groups, {"rollout/reward": np.float32(0.1), "odd": [1, None]})


def evaluation() -> RolloutFnEvalOutput:
    """Return an eval of two datasets."""
    rng = np.random.default_rng(99)
    samples = [_sample(rng, n, index=n) for n in (0, 3)]
    math_data = {"rewards": [1.0, None], "truncated": [False, True], "samples": samples, "extra": (1,)}
    return RolloutFnEvalOutput({"math": math_data, "empty": {"rewards": [], "samples": []}}, {"eval/math": 1.0})


def fill(store: SampleStore) -> None:
    """Record two attempts, a second rollout, an eval, a weight version, and what later revisions have beside that."""
    run = store.run(RUN, config={"lr": 1e-6, "name": "naïve"})
    run.record_train(0, train(100), state={"cursor": 1, "buffer": [[_sample(np.random.default_rng(1), 1)]]})
    run.record_train(0, train(0), state={"cursor": 1})
    run.record_train(1, train(1), state={"cursor": 2})
    run.record_eval(1, evaluation(), weight_version="2")
    run.record_weight_version("2", metadata={"note": "good"})
    if hasattr(run, "recovery"):  # 0003
        run.recovery.record_checkpoint(0)
        journal = run.recovery.journal()
        journal.put(2, [_sample(np.random.default_rng(2), 5, group_index=8)])
        journal.close()
    if hasattr(run, "pin"):  # 0005
        run.pin(0, note="kept")
