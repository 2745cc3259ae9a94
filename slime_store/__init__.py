"""slime_store: a persistent sample store for reinforcement-learning post-training with slime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slime_store.store import Run as Run
    from slime_store.store import SampleStore as SampleStore
    from slime_store.store import copy_store as copy_store
    from slime_store.types import ParamInfo as ParamInfo
    from slime_store.types import RolloutBatch as RolloutBatch
    from slime_store.types import RolloutFnEvalOutput as RolloutFnEvalOutput
    from slime_store.types import RolloutFnTrainOutput as RolloutFnTrainOutput
    from slime_store.types import Sample as Sample
    from slime_store.types import SampleFilter as SampleFilter

__version__ = "0.1.0"

_ROOMS = {
    "Run": "slime_store.store",
    "SampleStore": "slime_store.store",
    "copy_store": "slime_store.store",
    "ParamInfo": "slime_store.types",
    "RolloutBatch": "slime_store.types",
    "RolloutFnEvalOutput": "slime_store.types",
    "RolloutFnTrainOutput": "slime_store.types",
    "Sample": "slime_store.types",
    "SampleFilter": "slime_store.types",
}

__all__ = ["__version__", *_ROOMS]


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that ``import slime_store`` costs next to nothing."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'slime_store' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_ROOMS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
