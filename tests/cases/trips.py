"""There and back: record, open the store again, load."""

from __future__ import annotations

from typing import Any

from slime_store import Sample, SampleFilter
from slime_store.testing.contract.opening import loaded_train, opened, run_of


def round_trip(url: str, *samples: Sample, **options: Any) -> list[Sample]:
    """Record samples as the one group of rollout 0 and load them through a store that was just opened."""
    with run_of(url) as run:
        run.record_train(0, [list(samples)], **options)
    (group,) = loaded_train(url, 0, sample_type=Sample).samples
    return group


def attribute(url: str, name: str, values: list[Any]) -> list[Any]:
    """Return what becomes of one attribute's values, each in a sample of its own."""
    return [getattr(sample, name) for sample in round_trip(url, *[Sample(**{name: each}) for each in values])]


def found(url: str, **conditions: Any) -> list[Any]:
    """Return ``index`` of the samples that a filter finds."""
    with opened(url, read_only=True) as store:
        run = store.run("contract", create=False)
        return [sample.index for sample in run.iter_samples(SampleFilter(**conditions), sample_type=Sample)]
