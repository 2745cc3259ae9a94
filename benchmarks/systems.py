"""The systems that are measured side by side; each writes durably and reads back into ``Sample`` objects."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch

from slime_store import RolloutFnTrainOutput, Sample, SampleStore


class System(ABC):
    """A way to keep one rollout."""

    name: str

    @abstractmethod
    def write(self, number: int, output: RolloutFnTrainOutput) -> int:
        """Store a rollout durably and return the bytes that it takes."""

    @abstractmethod
    def read(self, number: int) -> Any:
        """Return the rollout's samples."""


class TorchDump(System):
    """slime's dump: ``torch.save`` of ``to_dict`` of each sample, here with an fsync."""

    name = "torch.save + fsync"

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, number: int, output: RolloutFnTrainOutput) -> int:
        path = self._directory / f"{number}.pt"
        samples = [sample.to_dict() for group in output.samples for sample in group]
        with open(path, "wb") as file:
            torch.save({"rollout_id": number, "samples": samples}, file)
            file.flush()
            os.fsync(file.fileno())
        return path.stat().st_size

    def read(self, number: int) -> Any:
        dump = torch.load(self._directory / f"{number}.pt", weights_only=False)
        return [Sample.from_dict(sample) for sample in dump["samples"]]


class Store(System):
    """slime_store on one database."""

    def __init__(self, name: str, url: str | Path) -> None:
        self.name = name
        self._store = SampleStore.open(url)
        self._run = self._store.run("benchmark")
        self._size = self._store.stats().size_bytes

    def write(self, number: int, output: RolloutFnTrainOutput) -> int:
        self._run.record_train(number, output)
        return 0

    def settle(self) -> int:
        """Return by how much the last rollout made the store grow, rows and indexes included; not timed."""
        size, self._size = self._size, self._store.stats().size_bytes
        return self._size - size

    def read(self, number: int) -> Any:
        return self._run.load_train(number, sample_type=Sample).samples


class BackgroundStore(Store):
    """The same, recorded in the background: the time is what the caller waits."""

    def write(self, number: int, output: RolloutFnTrainOutput) -> int:
        self._future = self._run.record_train(number, output, background=True)
        return 0

    def settle(self) -> int:
        """Wait until the rollout is stored; not part of what is timed."""
        self._future.result()
        return super().settle()
