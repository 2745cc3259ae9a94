"""The store inside this framework: what slime_store.plugins.slime is for slime."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from slime_store.plugins.data_source import RecordingDataSource
from slime_store.plugins.frameworks import Framework
from slime_store.plugins.rollout import plain_rollout

HERE = "tests.plugins.fake_framework"

FAKE = Framework(
    name=HERE,
    types_module="slime_store.types",
    outputs_module="slime_store.types",
    rollout_function_path=f"{HERE}.loop.generate_rollout",
    data_source_path=f"{HERE}.data_source.BufferedSource",
    trains_only=("fully_async",),
    carriers=("Worker",),
)


def generate_rollout(args: Namespace, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    return plain_rollout(FAKE, args, rollout_id, data_source, evaluation)


class StoreSource(RecordingDataSource):
    def __init__(self, args: Namespace) -> None:
        super().__init__(args, FAKE)

    def __len__(self) -> int:
        return len(self._inner) if self._inner is not None else self._session.n_replayed_groups
