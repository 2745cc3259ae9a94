"""One file a rollout, the whole of it written and read at once: slime's dump, pickle, JSON lines."""

from __future__ import annotations

import json
import pickle
from itertools import islice
from typing import Any

import torch

from benchmarks.systems.base import FileSystem, sync
from benchmarks.systems.plain import batch_of_samples
from benchmarks.workloads import samples_of
from slime_store import RolloutFnTrainOutput, Sample


class Dump(FileSystem):
    """A file that can only be read whole."""

    def load_batch(self, number: int) -> dict[str, list[Any]]:
        return batch_of_samples(self.load_train(number))

    def load_one(self, number: int, position: int, group_index: int = 0) -> Any:
        return self.load_train(number)[position]


class TorchDump(Dump):
    """slime's dump: ``torch.save`` of ``to_dict`` of each sample, here with an fsync."""

    name = "torch.save + fsync"
    suffix = ".pt"
    holds_huge = True

    def record(self, number: int, output: RolloutFnTrainOutput) -> None:
        samples = [sample.to_dict() for sample in samples_of(output)]
        with open(self.path(number), "wb") as file:
            torch.save({"rollout_id": number, "samples": samples}, file)
            sync(file)

    def load_train(self, number: int) -> list[Any]:
        dump = torch.load(self.path(number), weights_only=False)
        return [Sample.from_dict(sample) for sample in dump["samples"]]


class Pickle(Dump):
    """The same dicts by pickle, which writes tensors through torch's own reduction."""

    name = "pickle + fsync"
    suffix = ".pickle"

    def record(self, number: int, output: RolloutFnTrainOutput) -> None:
        samples = [sample.to_dict() for sample in samples_of(output)]
        with open(self.path(number), "wb") as file:
            pickle.dump(samples, file, pickle.HIGHEST_PROTOCOL)
            sync(file)

    def load_train(self, number: int) -> list[Any]:
        with open(self.path(number), "rb") as file:
            return [Sample.from_dict(sample) for sample in pickle.load(file)]


class JsonLines(Dump):
    """One line of JSON a sample; text only."""

    name = "JSON lines + fsync"
    suffix = ".jsonl"
    holds_media = False

    def record(self, number: int, output: RolloutFnTrainOutput) -> None:
        with open(self.path(number), "wb") as file:
            for sample in samples_of(output):
                file.write(json.dumps(sample.to_dict()).encode() + b"\n")
            sync(file)

    def load_train(self, number: int) -> list[Any]:
        with open(self.path(number), "rb") as file:
            return [Sample.from_dict(json.loads(line)) for line in file]

    def load_one(self, number: int, position: int, group_index: int = 0) -> Any:
        with open(self.path(number), "rb") as file:
            return Sample.from_dict(json.loads(next(islice(file, position, None))))

    def walk(self, number: int) -> None:
        with open(self.path(number), "rb") as file:
            for line in file:
                Sample.from_dict(json.loads(line))
