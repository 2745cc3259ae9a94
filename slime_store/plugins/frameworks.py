"""What differs between slime and miles, as data; and loading functions by path."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from slime_store.errors import SettingsError
from slime_store.plugins.settings import PREFIX


@dataclass(frozen=True)
class Framework:
    """One framework.

    Attributes:
        name: its package.
        types_module: where ``Sample`` is.
        outputs_module: where ``RolloutFnTrainOutput`` and ``RolloutFnEvalOutput`` are.
        rollout_function_path: its default rollout function, called with (args, rollout_id, data_source, evaluation).
        data_source_path: its default data source.
        rollout_class_path: its default rollout class, where it has such.
        trains_only: parts of the paths of rollout functions that cannot evaluate; evals go to the default one.
        carriers: classes whose presence in a rollout function's module says that it keeps groups in flight.
        group_function: name of the coroutine that generates and rewards one group, in any module that uses it.
    """

    name: str
    types_module: str
    outputs_module: str
    rollout_function_path: str
    data_source_path: str
    rollout_class_path: str | None = None
    trains_only: tuple[str, ...] = ()
    carriers: tuple[str, ...] = ()
    group_function: str = "generate_and_rm_group"

    @property
    def sample_type(self) -> type[Any]:
        """Its ``Sample``."""
        found: type[Any] = importlib.import_module(self.types_module).Sample
        return found

    def train_output(self, samples: Any, metrics: dict[str, Any] | None) -> Any:
        """Make its ``RolloutFnTrainOutput``."""
        return importlib.import_module(self.outputs_module).RolloutFnTrainOutput(samples=samples, metrics=metrics)

    def eval_output(self, data: Any, metrics: dict[str, Any] | None) -> Any:
        """Make its ``RolloutFnEvalOutput``."""
        return importlib.import_module(self.outputs_module).RolloutFnEvalOutput(data=data, metrics=metrics)


SLIME = Framework(
    name="slime",
    types_module="slime.utils.types",
    outputs_module="slime.rollout.base_types",
    rollout_function_path="slime.rollout.sglang_rollout.generate_rollout",
    data_source_path="slime.rollout.data_source.RolloutDataSourceWithBuffer",
    trains_only=("fully_async",),
    carriers=("AsyncRolloutWorker",),
)

MILES = Framework(
    name="miles",
    types_module="miles.utils.types",
    outputs_module="miles.rollout.base_types",
    rollout_function_path="miles.rollout.sglang_rollout.generate_rollout",
    data_source_path="miles.rollout.data_source.RolloutDataSourceWithBuffer",
    rollout_class_path="miles.rollout.inference_rollout.inference_rollout_common.InferenceRolloutFn",
    carriers=("AsyncRolloutWorker", "FullyAsyncRolloutFn", "AsyncMultiLoRAWorker"),
)


def load_object(path: str) -> Any:
    """Return what a dotted path names: ``package.module.name``.

    Raises:
        ImportError: the module cannot be imported.
        AttributeError: it has no such name.
        ValueError: it has no dot.
    """
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def load_setting(name: str, path: str) -> Any:
    """Return what the path in a setting names.

    Raises:
        SettingsError: it names nothing that can be imported.
    """
    try:
        return load_object(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(PREFIX + name, f"{path!r} cannot be loaded ({type(error).__name__}: {error})") from error
