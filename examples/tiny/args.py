"""Every setting of the example, under slime's name where slime has one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tiny.events import Event, unheard

if TYPE_CHECKING:
    from tiny.engine import Engine


@dataclass
class Args:
    """What slime parses from its command line, as far as this example needs it.

    Attributes:
        seed: of the weights, the prompts and every sampled token.
        num_rollout: training steps; one rollout each.
        rollout_function_path: what generates a rollout.
        data_source_path: where its prompts come from.
        custom_config_path: a YAML file with further settings, which become attributes beside these.
        rollout_batch_size: prompts per rollout.
        n_samples_per_prompt: answers per prompt; they form a group.
        rollout_max_response_len: tokens after which an answer is cut off.
        server_concurrency: sequences of an eval that the engine decodes at once.
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
        save: directory of the checkpoints; a process begins with the last one in it.
        save_interval: steps between checkpoints.
        engine: the inference engine. slime puts the address of its router here.
        tell: hears how training goes; see ``tiny.events``.
    """

    seed: int = 0
    num_rollout: int = 80
    rollout_function_path: str = "tiny.rollout.generate_rollout"
    data_source_path: str = "tiny.data_source.DataSource"
    custom_config_path: str | None = None
    rollout_batch_size: int = 24
    n_samples_per_prompt: int = 8
    rollout_max_response_len: int = 9
    server_concurrency: int = 64
    eval_interval: int = 16
    n_eval_prompts: int = 64
    max_difficulty: int = 7
    dataset_size: int = 2048
    hidden_size: int = 64
    num_layers: int = 2
    num_attention_heads: int = 4
    lr: float = 2e-3
    lr_warmup_iters: int = 10
    num_steps_per_rollout: int = 2
    eps_clip: float = 0.2
    eps_clip_high: float = 0.28
    clip_grad: float = 1.0
    reward_key: str | None = None
    save: str = "checkpoints"
    save_interval: int = 16
    engine: Engine | None = field(default=None, repr=False)
    tell: Callable[[Event], None] = field(default=unheard, repr=False)

    @property
    def max_prompt_len(self) -> int:
        """Tokens of the longest prompt: its digits and the ``>`` behind them."""
        return self.max_difficulty + 1

    @property
    def context_len(self) -> int:
        """Tokens of the longest prompt with the longest answer."""
        return self.max_prompt_len + self.rollout_max_response_len

    def read_custom_config(self) -> None:
        """Take the settings of ``custom_config_path`` over as attributes, as slime does.

        slime reads any YAML; this reads ``key: word`` a line, which spares the example a dependency.
        """
        if self.custom_config_path is None:
            return
        for line in Path(self.custom_config_path).read_text().splitlines():
            key, _, value = line.partition(": ")
            setattr(self, key.strip(), value.strip())
