"""Every setting of the example, under slime's name where slime has one."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tiny.engine import Engine


@dataclass
class Args:
    """What slime parses from its command line, as far as this example needs it.

    Attributes:
        seed: of the weights, the prompts and every sampled token.
        num_rollout: training steps; one rollout each.
        start_rollout_id: the first step, after a checkpoint the one behind it.
        rollout_batch_size: prompts per rollout.
        n_samples_per_prompt: answers per prompt; they form a group.
        rollout_max_response_len: tokens after which an answer is cut off.
        server_concurrency: sequences that the engine decodes at once.
        eval_interval: steps between evals; one more comes before the first step.
        n_eval_prompts: held-out prompts per eval dataset.
        max_difficulty: digits of the longest number to reverse.
        dataset_size: training prompts in an epoch.
        hidden_size: width of the transformer.
        num_layers: its depth.
        num_attention_heads: heads per layer.
        lr: step size of AdamW.
        lr_warmup_iters: optimizer steps until ``lr`` is reached.
        num_steps_per_rollout: optimizer steps per rollout; from the second one on, the weights are
            no longer those that generated the samples and the clipping below begins to matter.
        eps_clip: how far below 1 a token's probability ratio may pull.
        eps_clip_high: how far above 1.
        clip_grad: largest norm of a gradient.
        reward_key: entry of a dict reward that counts; the rewards here are plain numbers.
        save: directory of the checkpoints; None saves none.
        save_interval: steps between checkpoints.
        engine: the inference engine. slime puts the address of its router here.
    """

    seed: int = 0
    num_rollout: int = 150
    start_rollout_id: int = 0
    rollout_batch_size: int = 32
    n_samples_per_prompt: int = 8
    rollout_max_response_len: int = 9
    server_concurrency: int = 64
    eval_interval: int = 15
    n_eval_prompts: int = 64
    max_difficulty: int = 7
    dataset_size: int = 2048
    hidden_size: int = 64
    num_layers: int = 2
    num_attention_heads: int = 4
    lr: float = 1e-3
    lr_warmup_iters: int = 10
    num_steps_per_rollout: int = 2
    eps_clip: float = 0.2
    eps_clip_high: float = 0.28
    clip_grad: float = 1.0
    reward_key: str | None = None
    save: str | None = None
    save_interval: int = 20
    engine: Engine | None = field(default=None, repr=False)

    @property
    def max_prompt_len(self) -> int:
        """Tokens of the longest prompt: its digits and the ``>`` behind them."""
        return self.max_difficulty + 1

    @property
    def context_len(self) -> int:
        """Tokens of the longest prompt with the longest answer."""
        return self.max_prompt_len + self.rollout_max_response_len

    def config(self) -> dict[str, Any]:
        """Return the settings as plain data, as a run keeps them."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "engine"}
