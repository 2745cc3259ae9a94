"""slime_store, on its databases."""

from __future__ import annotations

import time
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.systems.base import Place, System
from slime_store import RolloutFnTrainOutput, Sample, SampleFilter, SampleStore


class Store(System):
    """A store that is filled rollout by rollout."""

    holds_huge = True
    background: ClassVar[bool] = False

    def __init__(self, place: Place) -> None:
        self._store = SampleStore.open(self.url(place))
        self._run = self._store.run("benchmark")
        self._size = self._store.stats().size_bytes

    @staticmethod
    @abstractmethod
    def url(place: Place) -> str | Path:
        """Return the store's address."""

    def record(self, number: int, output: RolloutFnTrainOutput) -> float | None:
        if not self.background:
            self._run.record_train(number, output)
            return None
        start = time.perf_counter()
        future = self._run.record_train(number, output, background=True)
        blocked = time.perf_counter() - start
        future.result()
        return blocked

    def size(self, number: int) -> int:
        """Return by how much the last rollout made the store grow, rows, indexes and side files included."""
        size, self._size = self._size, self._store.stats().size_bytes
        return self._size - size

    def load_train(self, number: int) -> list[Any]:
        return [s for group in self._run.load_train(number, sample_type=Sample).samples for s in group]

    def load_batch(self, number: int) -> dict[str, list[Any]]:
        return self._run.load_batch(number)

    def load_one(self, number: int, position: int, group_index: int) -> Any:
        where = SampleFilter(kind="train", rollout_ids=number, group_index=group_index)
        return next(self._run.iter_samples(where, batch_size=1, sample_type=Sample))

    def walk(self, number: int) -> None:
        where = SampleFilter(kind="train", rollout_ids=number)
        for _ in self._run.iter_samples(where, batch_size=1, sample_type=Sample):
            pass

    def forget(self, number: int) -> None:
        self._run.delete_rollout(number)

    def close(self) -> None:
        self._store.close()


class SqliteStore(Store):
    """Recording returns when the rollout is durable."""

    name = "slime_store, SQLite"

    @staticmethod
    def url(place: Place) -> Path:
        return place.directory / "store.db"


class BackgroundStore(Store):
    """The caller waits for the encoding only."""

    name = "slime_store, background"
    background = True

    @staticmethod
    def url(place: Place) -> Path:
        return place.directory / "background.db"


class PostgresStore(Store):
    """On a server of this machine."""

    name = "slime_store, PostgreSQL"

    @classmethod
    def is_available(cls, place: Place) -> bool:
        return place.postgres is not None

    @staticmethod
    def url(place: Place) -> str:
        assert place.postgres is not None
        return place.postgres
