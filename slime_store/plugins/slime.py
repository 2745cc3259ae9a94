"""slime_store inside slime: two flags and a YAML file; see docs/slime.md.

``--rollout-function-path slime_store.plugins.slime.generate_rollout``
``--data-source-path slime_store.plugins.slime.StoreDataSource``
"""

from __future__ import annotations

from typing import Any

from slime_store.plugins.data_source import RecordingDataSource
from slime_store.plugins.frameworks import SLIME
from slime_store.plugins.rollout import plain_rollout


def generate_rollout(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """Generate a rollout with the configured function and record it; or serve it from the store.

    Args:
        args: slime's arguments, with the ``slime_store_...`` settings.
        rollout_id: the training step.
        data_source: slime's data source, best a ``StoreDataSource``.
        evaluation: whether this is an eval.

    Returns:
        slime's ``RolloutFnTrainOutput`` or ``RolloutFnEvalOutput``, with counters under ``store/`` among the metrics.

    Raises:
        SettingsError: the settings are wrong.
        RolloutNotFoundError: in replay mode, the rollout is not recorded.
        StoreError: only with ``slime_store_on_error: raise``.
    """
    return plain_rollout(SLIME, args, rollout_id, data_source, evaluation)


class StoreDataSource(RecordingDataSource):
    """The configured data source, whose state is recorded with every rollout; for ``--data-source-path``.

    Args:
        args: slime's arguments, with the ``slime_store_...`` settings.
    """

    def __init__(self, args: Any) -> None:
        super().__init__(args, SLIME)

    def __len__(self) -> int:
        """Length of the wrapped source; in replay mode, as many prompts as the recorded rollouts have groups."""
        return len(self._inner) if self._inner is not None else self._session.n_replayed_groups
