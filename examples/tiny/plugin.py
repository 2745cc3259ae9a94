"""The store inside this example: what ``slime_store.plugins.slime`` is inside slime, with other import paths."""

from __future__ import annotations

from typing import Any

from slime_store.plugins.data_source import RecordingDataSource
from slime_store.plugins.frameworks import Framework
from slime_store.plugins.rollout import plain_rollout

TINY = Framework(
    name="tiny",
    types_module="slime_store.types",
    outputs_module="slime_store.types",
    rollout_function_path="tiny.rollout.generate_rollout",
    data_source_path="tiny.data_source.DataSource",
)


def generate_rollout(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """Generate a rollout and record it, or serve it from the store; for ``--rollout-function-path``."""
    return plain_rollout(TINY, args, rollout_id, data_source, evaluation)


class StoreDataSource(RecordingDataSource):
    """The data source, whose state is recorded with every rollout; for ``--data-source-path``."""

    def __init__(self, args: Any) -> None:
        super().__init__(args, TINY)
