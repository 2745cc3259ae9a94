"""SQLite with nothing around it: ``executemany`` of int32, float32 and uint8 bytes, uncompressed. The floor."""

from __future__ import annotations

import json
import sqlite3
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks.systems.base import Place, System
from benchmarks.systems.plain import LISTS, Part, batch_of, join, split
from benchmarks.workloads import samples_of
from slime_store import RolloutFnTrainOutput

_SCHEMA = """
CREATE TABLE samples (rollout, position, head, tokens, loss_mask, log_probs, PRIMARY KEY (rollout, position));
CREATE TABLE parts (rollout, position, part, name, of, dtype, shape, data, PRIMARY KEY (rollout, position, part));
"""


class BareSqlite(System):
    """Two tables, write-ahead log, ``synchronous=FULL``: as durable as slime_store."""

    name = "bare sqlite3"

    def __init__(self, place: Place) -> None:
        self._path = place.directory / "bare.db"
        is_new = not self._path.exists()
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        if is_new:
            self._connection.executescript("PRAGMA page_size = 16384; PRAGMA journal_mode = WAL;" + _SCHEMA)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._size = self._total()

    def record(self, number: int, output: RolloutFnTrainOutput) -> None:
        samples, parts = [], []
        for position, sample in enumerate(samples_of(output)):
            head, arrays, own = split(sample)
            samples.append((number, position, head, *(array.tobytes() for array in arrays.values())))
            for i, part in enumerate(own):
                described = (part.name, part.of, part.dtype, json.dumps(part.shape), part.data)
                parts.append((number, position, i, *described))
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?)", samples)
        self._connection.executemany("INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", parts)
        self._connection.execute("COMMIT")

    def size(self, number: int) -> int:
        size, self._size = self._size, self._total()
        return self._size - size

    def load_train(self, number: int) -> list[Any]:
        return list(map(_sample, self._rows(number)))

    def load_batch(self, number: int) -> dict[str, list[Any]]:
        return batch_of(self._rows(number))

    def load_one(self, number: int, position: int, group_index: int = 0) -> Any:
        return _sample(self._rows(number, "AND position = ?", position)[0])

    def walk(self, number: int) -> None:
        for (position,) in self._connection.execute("SELECT position FROM samples WHERE rollout = ?", (number,)):
            self.load_one(number, position)

    def forget(self, number: int) -> None:
        for table in ("samples", "parts"):
            self._connection.execute(f"DELETE FROM {table} WHERE rollout = ?", (number,))
        self._total()

    def close(self) -> None:
        self._connection.close()

    def _total(self) -> int:
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self._path.stat().st_size

    def _rows(self, number: int, condition: str = "", *values: int) -> list[Any]:
        where = f"WHERE rollout = ? {condition} ORDER BY position"
        query = f"SELECT position, name, of, dtype, shape, data FROM parts {where}, part"
        parts = {
            position: [
                Part(name, of, dtype, tuple(json.loads(shape)), data) for _, name, of, dtype, shape, data in rows
            ]
            for position, rows in groupby(self._connection.execute(query, (number, *values)), itemgetter(0))
        }
        query = f"SELECT position, head, tokens, loss_mask, log_probs FROM samples {where}"
        return [
            (head, dict(zip(LISTS, map(np.frombuffer, data, LISTS.values()), strict=True)), parts.get(position, []))
            for position, head, *data in self._connection.execute(query, (number, *values))
        ]


def _sample(row: Any) -> Any:
    head, arrays, parts = row
    return join(head, {name: array.tolist() for name, array in arrays.items()}, parts)
