"""What one rollout is between Python objects and tables: rows without database keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slime_store.mapping.nesting import Group
from slime_store.mapping.packs import Pack

SAMPLE_COLUMNS = (
    "position",
    "group_position",
    "sample_position",
    "segment_position",
    "dataset_position",
    "layout",
    "group_index",
    "sample_index",
    "execution_id",
    "status",
    "reward",
    "reward_type",
    "eval_reward",
    "eval_truncated",
    "remove_sample",
    "n_tokens",
    "response_length",
    "effective_response_length",
    "non_generation_time",
    "spec_accept_token_num",
    "spec_draft_token_num",
    "spec_verify_ct",
    "completion_token_num",
    "cached_tokens",
    "total_prompt_tokens",
)
"""Columns of ``samples`` that mapping fills, in the order of ``EncodedSample.columns``."""


@dataclass(frozen=True)
class EncodedPrompt:
    """A distinct prompt: ``text`` when it is clean text, else ``document``."""

    digest: bytes
    text: str | None
    document: str | None


@dataclass
class EncodedSample:
    """One sample's rows; what needs database keys is named by label or digest."""

    columns: tuple[Any, ...]
    prompt: bytes | None
    versions: list[tuple[str, int]]
    """(label, number of turns) for each run of equal labels."""
    rewards: dict[tuple[int, str], float | None]
    text: tuple[str | None, str] | None
    """(label, response)."""
    metadata: str | None
    extra: str | None


@dataclass(frozen=True)
class EncodedDataset:
    """One eval dataset."""

    name: str
    first_position: int
    n_samples: int
    shape: str | None
    content: str


@dataclass
class EncodedRollout:
    """A rollout as it was at the moment of encoding: later changes to the samples do not reach it.

    ``blobs`` maps names to arrays whose bytes the documents refer to; with ``copy=False`` they may share memory
    with the caller's tensors.
    """

    kind: str
    shape: str
    layouts: list[tuple[str, ...]] = field(default_factory=list)
    metrics: str = "null"
    metric_values: dict[tuple[int, str], float | None] = field(default_factory=dict)
    state: str | None = None
    samples: list[EncodedSample] = field(default_factory=list)
    groups: list[tuple[Group, int | None]] = field(default_factory=list)
    datasets: list[EncodedDataset] = field(default_factory=list)
    prompts: dict[bytes, EncodedPrompt] = field(default_factory=dict)
    packs: list[Pack] = field(default_factory=list)
    blobs: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    placeholders: list[str] = field(default_factory=list)
    n_trajectories: int = 0

    @property
    def n_tokens(self) -> int:
        """Tokens of all samples, prompts included."""
        at = SAMPLE_COLUMNS.index("n_tokens")
        return sum(sample.columns[at] for sample in self.samples)
