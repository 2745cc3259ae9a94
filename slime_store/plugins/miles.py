"""slime_store inside miles: two flags and a YAML file; see docs/slime.md.

``--rollout-function-path slime_store.plugins.miles.StoreRolloutFn``
``--data-source-path slime_store.plugins.miles.StoreDataSource``

With ``MILES_USE_LEGACY_ROLLOUT_V1=1``, the rollout function is ``slime_store.plugins.miles.generate_rollout``.
"""

from __future__ import annotations

import importlib
from typing import Any

from slime_store.plugins.data_source import RecordingDataSource
from slime_store.plugins.frameworks import MILES
from slime_store.plugins.rollout import eval_rollout, plain_rollout, train_rollout
from slime_store.plugins.session import session_of

_RULES = "miles.rollout.inference_rollout.compatibility"
"""Where miles says how a rollout class or function is made and called."""


class StoreRolloutFn:
    """Generates a rollout with the configured class or function and records it; or serves it from the store.

    Called with miles's ``RolloutFnTrainInput`` or ``RolloutFnEvalInput``, it returns its ``RolloutFnTrainOutput`` or
    ``RolloutFnEvalOutput``, with counters under ``store/`` among the metrics; errors as for ``generate_rollout``.

    Args:
        input: miles's ``RolloutFnConstructorInput``; its arguments have the ``slime_store_...`` settings.
    """

    def __init__(self, input: Any) -> None:
        settings = session_of(input.args, MILES).settings
        path = settings.rollout_function_path or str(MILES.rollout_class_path)
        eval_path = settings.eval_function_path or path
        self._args = input.args
        self._data_source = input.data_source
        self._train: Any = None
        self._eval: Any = None
        if settings.mode != "replay":
            load = importlib.import_module(_RULES).load_rollout_function
            self._train = load(input, path)
            self._eval = self._train if eval_path == path else load(input, eval_path)

    def __call__(self, input: Any) -> Any:
        """Return the rollout that ``input`` asks for; a wrapped coroutine runs on miles's own loop."""
        session = session_of(self._args, MILES)
        wrapped = self._eval if input.evaluation else self._train
        weight_version = getattr(input, "weight_version", None)

        def generate() -> Any:
            return importlib.import_module(_RULES).call_rollout_function(wrapped, input)

        if input.evaluation:
            return eval_rollout(session, input.rollout_id, generate, weight_version)
        function = getattr(wrapped, "fn", wrapped)  # miles puts an adapter around a plain function
        return train_rollout(session, function, input.rollout_id, self._data_source, generate, weight_version)


def generate_rollout(args: Any, rollout_id: int, data_source: Any, evaluation: bool = False) -> Any:
    """Generate and record, or serve, a rollout in miles's older calling form.

    Args:
        args: miles's arguments, with the ``slime_store_...`` settings.
        rollout_id: the training step.
        data_source: miles's data source, best a ``StoreDataSource``.
        evaluation: whether this is an eval.

    Returns:
        miles's ``RolloutFnTrainOutput`` or ``RolloutFnEvalOutput``, with counters under ``store/`` among the metrics.

    Raises:
        SettingsError: the settings are wrong.
        RolloutNotFoundError: in replay mode, the rollout is not recorded.
        StoreError: only with ``slime_store_on_error: raise``.
    """
    return plain_rollout(MILES, args, rollout_id, data_source, evaluation)


class StoreDataSource(RecordingDataSource):
    """The configured data source, whose state is recorded with every rollout; for ``--data-source-path``.

    Args:
        args: miles's arguments, with the ``slime_store_...`` settings.
    """

    def __init__(self, args: Any) -> None:
        super().__init__(args, MILES)

    @property
    def dataset(self) -> Any:
        """The wrapped source's dataset, whose length miles asks for; in replay mode, something of that length."""
        return range(self._session.n_replayed_groups) if self._inner is None else self._inner.dataset

    def get_buffer_length(self) -> int | None:
        """Groups that wait to be handed out again; None for a source without a buffer."""
        ask = getattr(self._inner, "get_buffer_length", None)
        length: int | None = None if ask is None else ask()
        return length if length is None else length + len(self._again)

    def close(self) -> None:
        """Finish recording, and close the wrapped source where it asks for it."""
        close = getattr(self._inner, "close", None)
        try:
            if close is not None:
                close()
        finally:
            self._session.flush()
