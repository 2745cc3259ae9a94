"""The physical limit: the bytes of the arrays, nothing else, in one file; lists are converted by NumPy."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.systems.base import FileSystem, sync
from benchmarks.systems.plain import LISTS, Part, batch_of, join, split
from benchmarks.workloads import samples_of
from slime_store import RolloutFnTrainOutput


class Limit(FileSystem):
    """A plain write and fsync. The index of what is where is kept in memory, so nothing but bytes is read."""

    name = "limit: bytes + fsync"
    suffix = ".bytes"
    _indexes: dict[str, list[Any]] = {}  # noqa: RUF012 - shared on purpose: another object may read

    def record(self, number: int, output: RolloutFnTrainOutput) -> None:
        index = self._indexes[str(self.path(number))] = []
        with open(self.path(number), "wb") as file:
            for sample in samples_of(output):
                head, arrays, parts = split(sample)
                index.append((head, [len(array) for array in arrays.values()], [_described(part) for part in parts]))
                for array in arrays.values():
                    file.write(array.data)
                for part in parts:
                    file.write(part.data)
            sync(file)

    def load_train(self, number: int) -> list[Any]:
        return list(map(_sample, self._rows(number)))

    def load_batch(self, number: int) -> dict[str, list[Any]]:
        return batch_of(self._rows(number))

    def load_one(self, number: int, position: int, group_index: int = 0) -> Any:
        (row,) = self._rows(number, position)
        return _sample(row)

    def walk(self, number: int) -> None:
        for position in range(len(self._indexes[str(self.path(number))])):
            self.load_one(number, position)

    def _rows(self, number: int, position: int | None = None) -> list[Any]:
        rows, start = [], 0
        with open(self.path(number), "rb") as file:
            for i, (head, lengths, parts) in enumerate(self._indexes[str(self.path(number))]):
                sizes = [n * dtype.itemsize for n, dtype in zip(lengths, LISTS.values(), strict=True)]
                sizes += [part[-1] for part in parts]
                if position is None or i == position:
                    file.seek(start, os.SEEK_SET)
                    data = [file.read(size) for size in sizes]
                    arrays = {name: np.frombuffer(d, LISTS[name]) for name, d in zip(LISTS, data, strict=False)}
                    own = [Part(*part[:4], d) for part, d in zip(parts, data[len(LISTS) :], strict=True)]
                    rows.append((head, arrays, own))
                start += sum(sizes)
        return rows


def _described(part: Part) -> tuple[Any, ...]:
    return part.name, part.of, part.dtype, part.shape, len(part.data)


def _sample(row: Any) -> Any:
    head, arrays, parts = row
    return join(head, {name: array.tolist() for name, array in arrays.items()}, parts)
