"""The small data classes: media kinds, parameters, the records that come back."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import datetime, timezone

import pytest

from slime_store.types import (
    MultimodalType,
    MultimodalTypes,
    ParamInfo,
    RolloutInfo,
    RunInfo,
    StoreStats,
    WeightVersionInfo,
)

NOW = datetime(2026, 9, 1, tzinfo=timezone.utc)


def test_the_kinds_of_media_are_image_video_and_audio() -> None:
    assert [(kind.name, kind.placeholder) for kind in MultimodalTypes.all()] == [
        ("image", "<image>"),
        ("video", "<video>"),
        ("audio", "<audio>"),
    ]
    assert MultimodalTypes.get("video") is MultimodalTypes.VIDEO
    assert MultimodalTypes.get("smell") is None
    assert MultimodalType(name="image", placeholder="<image>") == MultimodalTypes.IMAGE


def test_a_parameter_is_frozen_data() -> None:
    torch = pytest.importorskip("torch")
    info = ParamInfo("w", torch.bfloat16, torch.Size([2, 3]), {"tp": 1}, 6, 0)
    assert pickle.loads(pickle.dumps(info)) == info
    with pytest.raises(dataclasses.FrozenInstanceError):
        info.size = 7  # type: ignore[misc]


@pytest.mark.parametrize(
    "record",
    [
        RunInfo("run", {"lr": 1e-6}, NOW, 3),
        RolloutInfo("run", "train", 7, 1, "complete", 1, 2, 16, 1000, 99, None, NOW, NOW),
        WeightVersionInfo(1, "7", 3, NOW, None, None),
        StoreStats("runs.db", 1, 2, 3, 4, 5, 6, 7, 8),
    ],
)
def test_records_are_frozen_equal_by_value_and_picklable(record: RunInfo) -> None:
    assert pickle.loads(pickle.dumps(record)) == record == dataclasses.replace(record)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(record)[0].name, "other")


def test_every_field_of_a_record_is_documented() -> None:
    for cls in (RunInfo, RolloutInfo, WeightVersionInfo, StoreStats, ParamInfo):
        for field in dataclasses.fields(cls):
            assert f"\n        {field.name}: " in str(cls.__doc__), f"{cls.__name__}.{field.name}"
