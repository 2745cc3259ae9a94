"""The inference engine: generates answers with its own copy of the weights, as a server beside training."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from tiny.args import Args
from tiny.policy import KeyValues, Policy, attention_mask, pad_prompts
from tiny.task import STOP_ID, VOCABULARY


@dataclass(frozen=True)
class Generation:
    """One answer.

    Attributes:
        tokens: its token ids, with the stop token if it came to one.
        log_probs: natural logarithm of each token's probability when it was drawn.
        stopped: False if the answer was cut off at the length limit.
    """

    tokens: list[int]
    log_probs: list[float]
    stopped: bool


class Engine:
    """Decodes batches of prompts with a key-value cache.

    Attributes:
        weight_version: how often this engine was given weights. Like slime's engines it starts
            at 0 in every process; the store keeps versions of different sessions apart.
    """

    def __init__(self, args: Args, policy: Policy) -> None:
        self.max_new_tokens = args.rollout_max_response_len
        self.weight_version = 0
        self._policy = copy.deepcopy(policy).requires_grad_(False).eval()

    def update_weights(self, policy: Policy) -> None:
        """Take over the weights that training arrived at."""
        self._policy.load_state_dict(policy.state_dict())
        self.weight_version += 1

    def draw_noise(self, seed: int, count: int) -> Tensor:
        """Return what decides the tokens of ``count`` answers, (count, max_new_tokens, vocabulary).

        All of it is drawn at once and from a generator of its own, so that answers depend on their
        seed and the weights only, not on what is generated before or beside them.
        """
        generator = torch.Generator().manual_seed(seed)
        return torch.empty(count, self.max_new_tokens, len(VOCABULARY)).exponential_(generator=generator)

    @torch.inference_mode()
    def generate(self, prompts: list[list[int]], noise: Tensor | None = None) -> list[Generation]:
        """Answer each prompt.

        Args:
            prompts: token ids.
            noise: rows of ``draw_noise``, one per prompt, to sample at temperature 1; None takes the
                most likely token each time.
        """
        width = self._policy.max_prompt_len
        ids, lengths = pad_prompts(prompts, width)
        mask = attention_mask(lengths, width, width + self.max_new_tokens)
        caches: list[KeyValues] = [[] for _ in self._policy.blocks]

        running = torch.ones(len(prompts), dtype=torch.bool)
        tokens, log_probs, in_answer = [], [], []
        fed, start = ids, 0
        for step in range(self.max_new_tokens):
            end = width + step
            logits = self._policy(fed, mask[:, :, start:end, :end], caches)[:, -1]
            log_prob = logits.log_softmax(dim=-1)
            # The largest p / e with e exponential is a draw from p: the race that torch.multinomial runs too.
            chosen = (log_prob if noise is None else log_prob.exp() / noise[:, step]).argmax(dim=-1, keepdim=True)
            tokens.append(chosen)
            log_probs.append(log_prob.gather(1, chosen))
            in_answer.append(running)
            running = running & (chosen[:, 0] != STOP_ID)
            if not running.any():
                break
            fed, start = chosen, end
        lengths_out = torch.stack(in_answer, dim=1).sum(dim=1).tolist()
        rows = zip(
            torch.cat(tokens, dim=1).tolist(), torch.cat(log_probs, dim=1).tolist(), lengths_out, running.tolist(),
            strict=True,
        )  # fmt: skip
        return [Generation(ids[:n], lps[:n], not unfinished) for ids, lps, n, unfinished in rows]
