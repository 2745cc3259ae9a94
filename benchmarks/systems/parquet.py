"""Parquet with zstd, by pyarrow: a column for each token list, one for the rest, one for tensors and images."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.systems.base import FileSystem, Place, sync_path
from benchmarks.systems.plain import LISTS, Part, batch_of, join, split
from benchmarks.workloads import samples_of
from slime_store import RolloutFnTrainOutput

_PART = ("name", "of", "dtype", "shape", "data")


class Parquet(FileSystem):
    """One table a rollout, compressed by zstd, with pyarrow's own settings otherwise."""

    name = "Parquet zstd + fsync"
    suffix = ".parquet"

    @classmethod
    def is_available(cls, place: Place) -> bool:
        return importlib.util.find_spec("pyarrow") is not None

    def record(self, number: int, output: RolloutFnTrainOutput) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [split(sample) for sample in samples_of(output)]
        columns: dict[str, Any] = {"position": pa.array(range(len(rows))), "head": pa.array([row[0] for row in rows])}
        for name in LISTS:
            arrays = [row[1][name] for row in rows]
            offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int32)
            columns[name] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(arrays)))
        if any(row[2] for row in rows):
            parts = [[{key: getattr(part, key) for key in _PART} for part in row[2]] for row in rows]
            shape = pa.list_(pa.int64())
            fields = [(key, shape if key == "shape" else pa.string()) for key in _PART[:-1]]
            columns["parts"] = pa.array(parts, pa.list_(pa.struct([*fields, ("data", pa.large_binary())])))
        pq.write_table(pa.table(columns), self.path(number), compression="zstd")
        sync_path(self.path(number))

    def load_train(self, number: int) -> list[Any]:
        return [
            join(head, {name: array.tolist() for name, array in arrays.items()}, parts)
            for head, arrays, parts in self._rows(number)
        ]

    def load_batch(self, number: int) -> dict[str, list[Any]]:
        return batch_of(self._rows(number))

    def load_one(self, number: int, position: int, group_index: int = 0) -> Any:
        ((head, arrays, parts),) = self._rows(number, [("position", "==", position)])
        return join(head, {name: array.tolist() for name, array in arrays.items()}, parts)

    def _rows(self, number: int, filters: Any = None) -> list[tuple[str, dict[str, Any], list[Part]]]:
        import pyarrow.parquet as pq

        table = pq.read_table(self.path(number), filters=filters).combine_chunks()
        columns: dict[str, list[Any]] = {}
        for name in LISTS:
            column = table[name].combine_chunks()
            values, offsets = column.values.to_numpy(), column.offsets.to_pylist()
            columns[name] = [values[a:b] for a, b in pairwise(offsets)]
        heads = table["head"].to_pylist()
        parts: list[list[Part]] = [[] for _ in heads]
        if "parts" in table.column_names:
            for own, found in zip(parts, table["parts"], strict=True):
                for part in found.values:
                    fields = [part[key].as_py() for key in _PART[:-1]]
                    own.append(Part(*fields[:3], tuple(fields[3]), memoryview(part["data"].as_buffer())))
        return [
            (head, {name: columns[name][i] for name in LISTS}, own)
            for i, (head, own) in enumerate(zip(heads, parts, strict=True))
        ]
