"""The GRPO update: advantages within a group, a clipped ratio to the recorded probabilities, a mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from slime_store import Sample
from tiny.args import Args
from tiny.policy import Policy, attention_mask, pad_prompts


@dataclass(frozen=True)
class Batch:
    """Samples as tensors, one row each.

    Attributes:
        ids: prompt, padded on the left, and answer, padded on the right, (batch, width + answer).
        prompt_lengths: (batch,).
        log_probs: of the answer's tokens, as the engine recorded them, (batch, answer).
        mask: 1.0 where a token of the answer counts in the loss, (batch, answer).
        advantages: (batch,).
    """

    ids: Tensor
    prompt_lengths: Tensor
    log_probs: Tensor
    mask: Tensor
    advantages: Tensor

    def __getitem__(self, rows: Tensor) -> Batch:
        """Return some of the rows."""
        return Batch(**{name: values[rows] for name, values in vars(self).items()})


class Trainer:
    """Holds the policy and its optimizer."""

    def __init__(self, args: Args) -> None:
        self.args = args
        self.policy = Policy(args)
        self.optimizer = torch.optim.AdamW(self.policy.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(
            self.optimizer, start_factor=1 / args.lr_warmup_iters, total_iters=args.lr_warmup_iters
        )

    def train(self, groups: list[list[Sample]]) -> dict[str, float]:
        """Learn from one rollout and return the figures of its optimizer steps, averaged."""
        batch = self._to_batch(groups)
        rows = torch.randperm(len(batch.ids)).chunk(self.args.num_steps_per_rollout)
        steps = [self._step(batch[part]) for part in rows]
        return {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}

    def state(self) -> dict[str, Any]:
        """Return all that decides how training goes on: weights, optimizer, schedule and random state."""
        return {
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "rng": torch.get_rng_state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where ``state`` was taken, bit for bit."""
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])

    def _step(self, batch: Batch) -> dict[str, float]:
        log_probs, entropy = self._evaluate(batch)
        ratio = (log_probs - batch.log_probs).exp()
        clipped = ratio.clamp(1 - self.args.eps_clip, 1 + self.args.eps_clip_high)
        advantages = batch.advantages[:, None]
        loss = _mean(-torch.minimum(ratio * advantages, clipped * advantages), batch.mask)

        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        grad_norm = nn.utils.clip_grad_norm_(self.policy.parameters(), self.args.clip_grad)
        self.optimizer.step()
        self.scheduler.step()
        with torch.no_grad():
            return {
                "pg_loss": loss.item(),
                "pg_clipfrac": _mean((ratio != clipped).float(), batch.mask).item(),
                "ppo_kl": _mean(batch.log_probs - log_probs, batch.mask).item(),
                "entropy": _mean(entropy, batch.mask).item(),
                "grad_norm": grad_norm.item(),
            }

    def _evaluate(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return log-probability and entropy of each token of the answers, both (batch, answer)."""
        width = self.policy.max_prompt_len
        inputs, answers = batch.ids[:, :-1], batch.ids[:, width:]
        mask = attention_mask(batch.prompt_lengths, width, inputs.shape[1])
        log_probs = self.policy(inputs, mask)[:, width - 1 :].log_softmax(dim=-1)
        entropy = -(log_probs.exp() * log_probs).sum(dim=-1)
        return log_probs.gather(2, answers[:, :, None])[:, :, 0], entropy

    def _to_batch(self, groups: list[list[Sample]]) -> Batch:
        samples = [sample for group in groups for sample in group]
        prompts, prompt_lengths = pad_prompts(
            [sample.tokens[: -sample.response_length] for sample in samples], self.policy.max_prompt_len
        )
        answers = _pad([sample.tokens[-sample.response_length :] for sample in samples])
        return Batch(
            ids=torch.cat([prompts, answers], dim=1),
            prompt_lengths=prompt_lengths,
            log_probs=_pad([sample.rollout_log_probs or [] for sample in samples]),
            mask=_pad([[float(kept) for kept in sample.loss_mask or []] for sample in samples]),
            advantages=self._advantages(groups),
        )

    def _advantages(self, groups: list[list[Sample]]) -> Tensor:
        """Return each sample's reward against its group: how many standard deviations better."""
        rewards = torch.tensor([[sample.get_reward_value(self.args) for sample in group] for group in groups])
        centred = rewards - rewards.mean(dim=1, keepdim=True)
        return (centred / (rewards.std(dim=1, keepdim=True) + 1e-6)).flatten()


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum() / mask.sum()


def _pad(rows: list[list[int]] | list[list[float]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
