"""The tables: one declarative class each, columns and constraints only."""

from slime_store.models.aggregate import RolloutMetricRow, RolloutWeightVersionRow
from slime_store.models.base import Base
from slime_store.models.blob import BlobPartRow, BlobReferenceRow, BlobRow
from slime_store.models.digest import RolloutDigestRow
from slime_store.models.imported import ImportRow
from slime_store.models.pin import PinRow
from slime_store.models.prompt import PromptRow
from slime_store.models.rollout import EvalDatasetRow, RolloutRow, RolloutStateRow, SampleGroupRow
from slime_store.models.run import AdoptionRow, CheckpointRow, RunRow, SessionRow
from slime_store.models.sample import (
    SampleArrayRow,
    SampleDocumentRow,
    SampleRewardRow,
    SampleRow,
    SampleTextRow,
)
from slime_store.models.weight_version import SampleWeightVersionRow, WeightVersionRow

__all__ = [
    "AdoptionRow",
    "Base",
    "BlobPartRow",
    "BlobReferenceRow",
    "BlobRow",
    "CheckpointRow",
    "EvalDatasetRow",
    "ImportRow",
    "PinRow",
    "PromptRow",
    "RolloutDigestRow",
    "RolloutMetricRow",
    "RolloutRow",
    "RolloutStateRow",
    "RolloutWeightVersionRow",
    "RunRow",
    "SampleArrayRow",
    "SampleDocumentRow",
    "SampleGroupRow",
    "SampleRewardRow",
    "SampleRow",
    "SampleTextRow",
    "SampleWeightVersionRow",
    "SessionRow",
    "WeightVersionRow",
]
