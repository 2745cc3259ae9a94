"""Every system of the benchmarks gives back what it was given: otherwise its figures would say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.systems import SYSTEMS, Place, System
from benchmarks.workloads import WORKLOADS, samples_of
from slime_store.testing import assert_same

NAMES = [name for name in SYSTEMS if "PostgreSQL" not in name]


@pytest.fixture(params=NAMES)
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[System]:
    kind = SYSTEMS[request.param]
    if not kind.is_available(Place(tmp_path)):
        pytest.skip(f"{kind.name} is not installed")
    opened = kind(Place(tmp_path))
    yield opened
    opened.close()


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda workload: workload.name)
def test_a_rollout_comes_back_as_samples(system: System, workload: object) -> None:
    assert_round_trip(system, workload)


@pytest.mark.postgresql
def test_a_rollout_comes_back_from_postgresql(tmp_path: Path, postgres_url: str) -> None:
    system = SYSTEMS["slime_store, PostgreSQL"](Place(tmp_path, postgres_url))
    assert_round_trip(system, WORKLOADS["W3"])
    system.close()


def assert_round_trip(system: System, workload: object) -> None:
    assert hasattr(workload, "make")
    if workload.media and not system.holds_media:
        return
    output = workload.make(workload.sizes["tiny"])
    samples = samples_of(output)
    blocked = system.record(7, output)
    assert blocked is None or blocked > 0
    assert system.size(7) >= 0
    assert_same(system.load_train(7), samples)
    last = len(samples) - workload.sizes["tiny"].samples_per_prompt
    assert_same(system.load_one(7, last, samples[last].group_index), samples[last])
    batch = system.load_batch(7)
    assert [tokens.tolist() for tokens in batch["tokens"]] == [sample.tokens for sample in samples]
    assert [mask.tolist() for mask in batch["loss_mask"]] == [sample.loss_mask for sample in samples]
    system.walk(7)
    system.forget(7)
