"""Workloads from fixed seeds: what slime's rollout function returns, at sizes that are usual.

W1 and W2 are text; W3 holds routing tables of a mixture-of-experts model, W4 images and what a processor made of them.
W5, a store of a thousand rollouts, is not one rollout and has a module of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from slime_store import RolloutFnTrainOutput, Sample

VOCABULARY = 151_936  # Qwen's
LAYERS, TOP_K, EXPERTS = 48, 8, 128  # Qwen3-30B-A3B
PATCHES, PATCH_VALUES = 4096, 1176  # of an image of 1024 x 1024 in Qwen2.5-VL's processor: 9.6 MB in bfloat16
PIXELS = 1024


@dataclass(frozen=True)
class Size:
    """Shape of a rollout.

    Attributes:
        scale: how much smaller images and patches are on each side; 1 is the real size.
    """

    prompts: int
    samples_per_prompt: int
    prompt_tokens: int
    response_tokens: int
    scale: int = 1

    @property
    def n_samples(self) -> int:
        """Samples of the rollout."""
        return self.prompts * self.samples_per_prompt

    @property
    def n_tokens(self) -> int:
        """Tokens of all samples."""
        return self.n_samples * (self.prompt_tokens + self.response_tokens)


@dataclass(frozen=True)
class Workload:
    """One kind of rollout.

    Attributes:
        make: makes it, the same for the same size.
        sizes: by name: full, quick (seconds), tiny (for tests).
        repeat: turns of each system, by size.
        media: it holds tensors or images, which JSON lines do not.
        is_huge: it takes gigabytes, so only slime_store and slime's own dump are measured.
    """

    name: str
    about: str
    make: Callable[[Size], RolloutFnTrainOutput]
    sizes: dict[str, Size]
    repeat: dict[str, int]
    media: bool = False
    is_huge: bool = False

    def describe(self, size: str) -> str:
        """Return a line about the workload at a size."""
        shape = self.sizes[size]
        rollout = f"{shape.prompts} prompts x {shape.samples_per_prompt} samples, {shape.n_tokens:,} tokens"
        return f"{self.name}: {rollout}; {self.about}"


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


def routed_rollout(size: Size) -> RolloutFnTrainOutput:
    """Return text samples with the experts that every token but the last was routed to, as slime holds them.

    Experts are uniform over the layer's, without any popularity: the hardest case for a compressor.
    """
    import torch

    rng = np.random.default_rng(1)
    output = text_rollout(size)
    for sample in samples_of(output):
        shape = (len(sample.tokens) - 1, LAYERS, TOP_K)
        sample.rollout_routed_experts = torch.from_numpy(rng.integers(0, EXPERTS, shape, np.uint8).astype(np.int32))
    return output


def routed_rollout_numpy(size: Size) -> RolloutFnTrainOutput:
    """Return the same with NumPy arrays, as miles holds them."""
    output = routed_rollout(size)
    for sample in samples_of(output):
        sample.rollout_routed_experts = sample.rollout_routed_experts.numpy()
    return output


def picture_rollout(size: Size) -> RolloutFnTrainOutput:
    """Return samples with an image, and with what the processor made of it.

    The samples of a prompt have equal images and tensors, but each its own: slime copies the prompt's sample for each
    of them and runs the processor each time.
    """
    import torch
    from PIL import Image

    rng = np.random.default_rng(2)
    output = text_rollout(size)
    side, patches = PIXELS // size.scale, PATCHES // size.scale**2
    y, x = np.mgrid[0:side, 0:side]
    for group in output.samples:
        smooth = np.stack([np.sin(x / rng.uniform(40, 90)) * 60 + np.cos(y / 50) * 60 + 128 for _ in range(3)], -1)
        picture = (smooth + rng.normal(0, 2, smooth.shape)).clip(0, 255).astype(np.uint8)
        pixel_values = torch.from_numpy(rng.normal(size=(patches, PATCH_VALUES)).astype(np.float32)).bfloat16()
        for sample in group:
            sample.multimodal_inputs = {"images": [Image.fromarray(picture)]}
            sample.multimodal_train_inputs = {
                "pixel_values": pixel_values.clone(),
                "image_grid_thw": torch.tensor([[1, side // 16, side // 16]]),
            }
    return output


def samples_of(output: Any) -> list[Any]:
    """Return the samples of a rollout in order."""
    return [sample for group in output.samples for sample in group]


_TEXT_REPEAT = {"full": 5, "quick": 2, "tiny": 1}
_MEDIA_REPEAT = {"full": 3, "quick": 1, "tiny": 1}
_W3_SIZES = {"full": Size(2, 8, 769, 32_000), "quick": Size(1, 4, 769, 4_000), "tiny": Size(2, 2, 5, 12)}

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "W1",
            "token lists",
            text_rollout,
            {"full": Size(64, 8, 200, 3080), "quick": Size(16, 8, 200, 3080), "tiny": Size(2, 2, 3, 9)},
            _TEXT_REPEAT,
        ),
        Workload(
            "W2",
            "long token lists",
            text_rollout,
            {"full": Size(8, 8, 500, 63_500), "quick": Size(1, 8, 500, 31_500), "tiny": Size(1, 2, 3, 40)},
            _TEXT_REPEAT,
        ),
        Workload(
            "W3",
            f"routing tables of {LAYERS} layers x {TOP_K} experts as int32 tensors",
            routed_rollout,
            _W3_SIZES,
            _MEDIA_REPEAT,
            media=True,
        ),
        Workload(
            "W3n",
            "the same tables as NumPy arrays",
            routed_rollout_numpy,
            _W3_SIZES,
            {"full": 2, "quick": 1, "tiny": 1},
            media=True,
        ),
        Workload(
            "W4",
            "an image of 1024 x 1024 and 9.6 MB of pixel values, equal in the samples of a prompt",
            picture_rollout,
            {
                "full": Size(32, 8, 200, 3080),
                "quick": Size(2, 8, 200, 1000, scale=2),
                "tiny": Size(2, 2, 3, 9, scale=32),
            },
            {"full": 2, "quick": 1, "tiny": 1},
            media=True,
            is_huge=True,
        ),
    )
}
