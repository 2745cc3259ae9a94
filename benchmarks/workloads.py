"""Workloads from fixed seeds: what slime's rollout function returns, at sizes that are usual."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slime_store import RolloutFnTrainOutput, Sample

VOCABULARY = 151_936  # Qwen's


@dataclass(frozen=True)
class Size:
    """Shape of a text workload."""

    prompts: int
    samples_per_prompt: int
    prompt_tokens: int
    response_tokens: int

    @property
    def n_tokens(self) -> int:
        """Tokens of all samples."""
        return self.prompts * self.samples_per_prompt * (self.prompt_tokens + self.response_tokens)


W1 = Size(64, 8, 200, 3080)
W1_QUICK = Size(16, 8, 200, 3080)


def text_rollout(size: Size, seed: int = 0) -> RolloutFnTrainOutput:
    """Return one rollout of text samples with all token fields as Python lists.

    Token ids are uniform over the vocabulary (the hardest case for a compressor), log-probs are exact in float32, loss
    masks have long runs of ones with a zeroed stretch, as tool calls leave them.
    """
    rng = np.random.default_rng(seed)
    groups = []
    for g in range(size.prompts):
        prompt_ids = rng.integers(0, VOCABULARY, size.prompt_tokens).tolist()
        prompt = f"Question {g}: " + "how many apples are left over? " * 12
        group = []
        for i in range(size.samples_per_prompt):
            n = size.response_tokens
            mask = np.ones(n, np.int64)
            start = int(rng.integers(0, n // 2))
            mask[start : start + n // 8] = 0
            log_probs = -rng.exponential(0.4, n).astype(np.float32)
            group.append(
                Sample(
                    group_index=g,
                    index=g * size.samples_per_prompt + i,
                    prompt=prompt,
                    tokens=prompt_ids + rng.integers(0, VOCABULARY, n).tolist(),
                    response="The answer is 7. " * 60,
                    response_length=n,
                    label="7",
                    reward=float(rng.integers(0, 2)),
                    loss_mask=mask.tolist(),
                    weight_versions=["3"],
                    rollout_log_probs=log_probs.astype(float).tolist(),
                    status=Sample.Status.COMPLETED,
                    metadata={"source": "gsm8k", "difficulty": int(rng.integers(1, 6)), "round_number": 0},
                )
            )
        groups.append(group)
    return RolloutFnTrainOutput(groups, metrics={"rollout/response_len/mean": float(size.response_tokens)})
