"""The policy: a decoder-only transformer over a dozen characters, about 100,000 parameters."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tiny.args import Args
from tiny.task import STOP_ID, VOCABULARY

KeyValues = list[Tensor]  # of one layer: keys and values, each (batch, heads, time, head size); [] when empty


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and beside a residual."""

    def __init__(self, hidden_size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden_size)
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.attention_out = nn.Linear(hidden_size, hidden_size)
        self.mlp_norm = nn.LayerNorm(hidden_size)
        self.mlp_up = nn.Linear(hidden_size, 4 * hidden_size)
        self.mlp_down = nn.Linear(4 * hidden_size, hidden_size)

    def forward(self, x: Tensor, mask: Tensor, cache: KeyValues | None = None) -> Tensor:
        """Return the block's output for ``x``, (batch, time, hidden).

        Args:
            x: the input of the new positions.
            mask: True where a new position may look, (batch, 1, time, time with the cached).
            cache: keys and values of the positions before; the new ones are appended to it.
        """
        batch, time, hidden = x.shape
        packed = self.query_key_value(self.attention_norm(x)).view(batch, time, 3, self.heads, -1)
        query, key, value = packed.permute(2, 0, 3, 1, 4)
        if cache is not None:
            if cache:
                key, value = torch.cat([cache[0], key], dim=2), torch.cat([cache[1], value], dim=2)
            cache[:] = [key, value]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, time, hidden))
        x = x + self.mlp_down(F.gelu(self.mlp_up(self.mlp_norm(x)), approximate="tanh"))
        return x


class Policy(nn.Module):
    """Next-token distribution of a character given those before it.

    Prompts are padded on the left, so that every answer begins at the same position. Learned positions
    then say how far a digit is from the place where the answer starts, which is all that reversing needs.
    """

    def __init__(self, args: Args) -> None:
        super().__init__()
        self.max_prompt_len = args.max_prompt_len
        self.token = nn.Embedding(len(VOCABULARY), args.hidden_size)
        self.position = nn.Embedding(args.context_len, args.hidden_size)
        self.blocks = nn.ModuleList(Block(args.hidden_size, args.num_attention_heads) for _ in range(args.num_layers))
        self.norm = nn.LayerNorm(args.hidden_size)
        self.apply(_init)

    def forward(self, ids: Tensor, mask: Tensor, caches: list[KeyValues] | None = None) -> Tensor:
        """Return the logits of the token after each position, (batch, time, vocabulary).

        Args:
            ids: token ids, (batch, time); with caches, the positions behind the cached ones.
            mask: what ``attention_mask`` returns, cut to the rows of these positions.
            caches: one per block, filled as a side effect; None computes all positions at once.
        """
        start = caches[0][0].shape[2] if caches and caches[0] else 0
        x = self.token(ids) + self.position.weight[start : start + ids.shape[1]]
        for layer, block in enumerate(self.blocks):
            x = block(x, mask, caches[layer] if caches is not None else None)
        return F.linear(self.norm(x), self.token.weight)  # tied: to answer a digit is to point at it


def pad_prompts(prompts: list[list[int]], width: int) -> tuple[Tensor, Tensor]:
    """Return the prompts padded on the left to ``width``, (batch, width), and their lengths, (batch,)."""
    ids = torch.full((len(prompts), width), STOP_ID)
    for row, prompt in zip(ids, prompts, strict=True):
        row[width - len(prompt) :] = torch.tensor(prompt)
    return ids, torch.tensor([len(prompt) for prompt in prompts])


def attention_mask(prompt_lengths: Tensor, width: int, total: int) -> Tensor:
    """Return where each position may look, (batch, 1, total, total): back, but not at the padding.

    A padding position looks at itself only, because attention to nothing at all is not a number.

    Args:
        prompt_lengths: (batch,).
        width: what the prompts are padded to on the left.
        total: ``width`` and the positions of the answer.
    """
    at = torch.arange(total)
    is_text = at[None, None, :] >= (width - prompt_lengths)[:, None, None]
    causal = at[None, :] <= at[:, None]
    return ((causal & is_text) | torch.eye(total, dtype=torch.bool))[:, None]


def _init(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.1)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
