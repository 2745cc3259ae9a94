"""Data sources with the shape of slime's: counters, epochs, shuffling, a buffer."""

from __future__ import annotations

import copy
import json
import random
from argparse import Namespace
from pathlib import Path
from typing import Any

from slime_store.types import Sample
from tests.plugins.fake_framework.ledger import write_whole

_SAVED = ("sample_offset", "epoch_id", "sample_group_index", "sample_index", "metadata")


class Dataset:
    def __init__(self, n_prompts: int, seed: int) -> None:
        self.origin_samples = [Sample(prompt=f"prompt {i}", label=str(i)) for i in range(n_prompts)]
        self.samples = self.origin_samples
        self._seed = seed
        self._epoch = -1

    def shuffle(self, epoch: int) -> None:
        if epoch != self._epoch:
            self.samples = random.Random(self._seed + epoch).sample(self.origin_samples, len(self.origin_samples))
            self._epoch = epoch

    def __len__(self) -> int:
        return len(self.samples)


class PlainSource:
    """Walks the dataset, epoch after epoch; groups cannot be given back."""

    def __init__(self, args: Namespace) -> None:
        self.args = args
        self.epoch_id = self.sample_offset = self.sample_group_index = self.sample_index = 0
        self.metadata: dict[str, Any] = {}
        self.dataset = Dataset(args.n_prompts, args.rollout_seed)
        self.dataset.shuffle(0)

    def get_samples(self, num_samples: int) -> list[list[Sample]]:
        return [self._next_group() for _ in range(num_samples)]

    def _next_group(self) -> list[Sample]:
        if self.sample_offset == len(self.dataset):  # an exact end of an epoch begins the next one only now
            self.epoch_id, self.sample_offset = self.epoch_id + 1, 0
            self.dataset.shuffle(self.epoch_id)
        prompt = self.dataset.samples[self.sample_offset]
        self.sample_offset += 1
        group = []
        for _ in range(self.args.n_samples_per_prompt):
            sample = copy.deepcopy(prompt)
            sample.group_index, sample.index = self.sample_group_index, self.sample_index
            sample.metadata = {"turns": []}
            self.sample_index += 1
            group.append(sample)
        self.sample_group_index += 1
        return group

    def add_samples(self, samples: list[list[Sample]]) -> None:
        raise RuntimeError("this source takes nothing back")

    def save(self, rollout_id: int) -> None:
        state = {name: getattr(self, name) for name in _SAVED}
        write_whole(self._file(rollout_id), json.dumps(state))

    def load(self, rollout_id: int | None = None) -> None:
        file = self._file(rollout_id)
        if file.exists():
            for name, value in json.loads(file.read_text()).items():
                setattr(self, name, value)
            self.dataset.shuffle(self.epoch_id)

    def _file(self, rollout_id: int | None) -> Path:
        return Path(self.args.save) / f"source_{rollout_id}.json"

    def __len__(self) -> int:
        return len(self.dataset)


class BufferedSource(PlainSource):
    """Hands out given-back groups first; as in slime, the buffer is in no file."""

    def __init__(self, args: Namespace) -> None:
        super().__init__(args)
        self.buffer: list[list[Sample]] = []

    def get_samples(self, num_samples: int) -> list[list[Sample]]:
        groups = self.buffer[:num_samples]
        del self.buffer[:num_samples]
        return groups + super().get_samples(num_samples - len(groups))

    def add_samples(self, samples: list[list[Sample]]) -> None:
        for group in samples:
            assert len(group) == self.args.n_samples_per_prompt
            self.buffer.append(group)

    def get_buffer_length(self) -> int:
        return len(self.buffer)


class OwnStateSource:
    """A user's own source: another order, other counters, and a state that only it understands."""

    def __init__(self, args: Namespace) -> None:
        self.args = args
        self._queue = list(range(args.n_prompts))[::-1] * 2
        self._n = 0

    def get_samples(self, num_samples: int) -> list[list[Sample]]:
        groups = []
        for _ in range(num_samples):
            prompt, number = self._queue[self._n % len(self._queue)], self._n
            self._n += 1
            size = self.args.n_samples_per_prompt
            groups.append(
                [
                    Sample(group_index=number, index=number * size + i, prompt=f"prompt {prompt}", label=str(prompt))
                    for i in range(size)
                ]
            )
        return groups

    def add_samples(self, samples: list[list[Sample]]) -> None:
        raise RuntimeError("this source takes nothing back")

    def state_dict(self) -> dict[str, Any]:
        return {"n": self._n}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._n = state["n"]

    def save(self, rollout_id: int) -> None:
        pass

    def load(self, rollout_id: int | None = None) -> None:
        pass


class NamelessSource(BufferedSource):
    """Gives its groups no index."""

    def _next_group(self) -> list[Sample]:
        group = super()._next_group()
        for sample in group:
            sample.group_index = None
        return group
