"""The data structures of the store: slime's own, field for field, and the records that come back.

Nothing here needs slime, torch or numpy: the module imports the standard library only, so that
importing it costs a few milliseconds.
"""

from slime_store.types.filters import SampleFilter
from slime_store.types.multimodal import MultimodalType, MultimodalTypes
from slime_store.types.neutral import Placeholder, Record
from slime_store.types.outputs import (
    RolloutBatch,
    RolloutFnEvalOutput,
    RolloutFnTrainOutput,
    iter_leaf_samples,
)
from slime_store.types.params import ParamInfo
from slime_store.types.records import ResumePoint, RolloutInfo, RunInfo, StoreStats, WeightVersionInfo
from slime_store.types.reports import (
    BackupReport,
    CopyReport,
    PinInfo,
    Problem,
    PruneReport,
    StoreStatus,
    UpgradeReport,
    VerifyReport,
)
from slime_store.types.sample import Sample

__all__ = [
    "BackupReport",
    "CopyReport",
    "MultimodalType",
    "MultimodalTypes",
    "ParamInfo",
    "PinInfo",
    "Placeholder",
    "Problem",
    "PruneReport",
    "Record",
    "ResumePoint",
    "RolloutBatch",
    "RolloutFnEvalOutput",
    "RolloutFnTrainOutput",
    "RolloutInfo",
    "RunInfo",
    "Sample",
    "SampleFilter",
    "StoreStats",
    "StoreStatus",
    "UpgradeReport",
    "VerifyReport",
    "WeightVersionInfo",
    "iter_leaf_samples",
]
