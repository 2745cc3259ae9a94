"""The data source: what ``--data-source-path`` names, with slime's methods."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import torch

from slime_store import Sample
from tiny.args import Args
from tiny.task import make_train_dataset


class DataSource:
    """Hands out groups of pending samples, epoch after epoch, each epoch in an order of its own.

    Attributes:
        buffer: groups that were given back; they are handed out again before new ones.
    """

    def __init__(self, args: Args) -> None:
        self.args = args
        self.epoch_id = 0
        self.sample_offset = 0  # prompts of this epoch already handed out
        self.sample_group_index = 0  # of the next group
        self.sample_index = 0  # of the next sample
        self.metadata: dict[str, Any] = {}
        self.buffer: list[list[Sample]] = []
        self._prompts = make_train_dataset(args)
        self._order = self._shuffled()

    def __len__(self) -> int:
        """Return the number of prompts in an epoch."""
        return len(self._prompts)

    def get_samples(self, num_samples: int) -> list[list[Sample]]:
        """Return the next ``num_samples`` groups, ``[num_samples][n_samples_per_prompt]``."""
        groups, self.buffer = self.buffer[:num_samples], self.buffer[num_samples:]
        while len(groups) < num_samples:
            groups.append(self._next_group())
        return groups

    def add_samples(self, samples: list[list[Sample]]) -> None:
        """Take back groups that were not finished."""
        self.buffer.extend(samples)

    def state_dict(self) -> dict[str, Any]:
        """Return all that decides what comes next, as plain data."""
        return {
            "epoch_id": self.epoch_id,
            "sample_offset": self.sample_offset,
            "sample_group_index": self.sample_group_index,
            "sample_index": self.sample_index,
            "metadata": copy.deepcopy(self.metadata),
            "buffer": [[copy.deepcopy(sample.to_dict()) for sample in group] for group in self.buffer],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state`` was taken."""
        self.epoch_id = state["epoch_id"]
        self.sample_offset = state["sample_offset"]
        self.sample_group_index = state["sample_group_index"]
        self.sample_index = state["sample_index"]
        self.metadata = copy.deepcopy(state["metadata"])
        self.buffer = [[Sample.from_dict(copy.deepcopy(data)) for data in group] for group in state["buffer"]]
        self._order = self._shuffled()

    def save(self, rollout_id: int) -> None:
        """Write the state beside the checkpoint of this step."""
        path = self._path(rollout_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), path)

    def load(self, rollout_id: int | None = None) -> None:
        """Go on behind the checkpoint of this step; -1 or None is the beginning."""
        if rollout_id is not None and rollout_id >= 0:
            self.load_state_dict(torch.load(self._path(rollout_id), weights_only=True))

    def _next_group(self) -> list[Sample]:
        if self.sample_offset == len(self._prompts):
            self.epoch_id, self.sample_offset = self.epoch_id + 1, 0
            self._order = self._shuffled()
        prompt = self._prompts[self._order[self.sample_offset]]
        group = [copy.deepcopy(prompt) for _ in range(self.args.n_samples_per_prompt)]
        for sample in group:
            sample.group_index, sample.index = self.sample_group_index, self.sample_index
            self.sample_index += 1
        self.sample_group_index += 1
        self.sample_offset += 1
        return group

    def _shuffled(self) -> list[int]:
        order = list(range(len(self._prompts)))
        random.Random(f"{self.args.seed}/{self.epoch_id}").shuffle(order)
        return order

    def _path(self, rollout_id: int) -> Path:
        return Path(self.args.save) / "rollout" / f"global_dataset_state_dict_{rollout_id}.pt"
