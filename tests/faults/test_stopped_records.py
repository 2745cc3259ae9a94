"""Side files that go between being written and the commit that names them: the record was stopped, or hindered."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slime_store import Sample, SampleStore
from slime_store.errors import DatabaseError
from slime_store.store import recording
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import opened
from tests.faults.given import RUN
from tests.services.filling import side_files

Remover = Callable[[str], None]


def by_verify(url: str) -> None:
    with SampleStore.open(url) as store:
        store.verify(fix=True)


def by_vacuum(url: str) -> None:
    with SampleStore.open(url) as store:
        store.vacuum()


def by_a_cut(url: str) -> None:
    for path in side_files(url):
        os.truncate(path, 1000)


def rollout(field: str) -> list[list[Sample]]:
    return [[make_sample(i, **{field: np.random.default_rng(i).integers(0, 255, 1 << 20, np.uint8)})] for i in range(2)]


@pytest.mark.parametrize("remove", [by_verify, by_vacuum, by_a_cut])
@pytest.mark.parametrize("field", ["rollout_routed_experts", "pixels"])
@pytest.mark.parametrize("background", [False, True])
def test_h8_a_record_that_was_stopped_for_longer_than_the_grace_time_writes_its_side_files_again(
    store_url: str, monkeypatch: pytest.MonkeyPatch, field: str, remove: Remover, background: bool
) -> None:
    prepare = recording.prepare

    def stopped(*args: Any) -> Any:
        prepared = prepare(*args)
        for path in side_files(store_url):
            os.utime(path, (0, 0))  # as after an hour, or after a clock that has jumped
        remove(store_url)
        return prepared

    with opened(store_url) as store:
        run = store.run(RUN)
        monkeypatch.setattr(recording, "prepare", stopped)
        run.record_train(0, rollout(field), background=background)
        store.flush()
        assert_same(run.load_train(0).samples, rollout(field))
        assert store.verify().problems == ()


@pytest.mark.parametrize("field", ["rollout_routed_experts", "pixels"])
def test_h9_a_record_whose_side_file_goes_before_its_commit_fails_and_can_be_made_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    def lose_one(*args: Any) -> None:
        paths: list[Path] = side_files(sqlite_url)
        paths[-1].unlink()

    with opened(sqlite_url) as store:
        run = store.run(RUN)
        with monkeypatch.context() as patched:
            patched.setattr(recording.AggregateRepository, "add", lose_one)
            with pytest.raises(DatabaseError, match=r"side file .* nothing was recorded"):
                run.record_train(0, rollout(field))
        assert run.rollouts() == [] and side_files(sqlite_url) == []
        run.record_train(0, rollout(field))
        assert_same(run.load_train(0).samples, rollout(field))
