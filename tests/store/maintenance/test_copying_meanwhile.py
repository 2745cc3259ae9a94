"""``copy_store`` while others write: to the source, which is followed, or to the target, which is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slime_store import Run, Sample, copy_store
from slime_store.errors import CopyError
from slime_store.repositories.copying import CopyRepository
from slime_store.schema import VERSION_TABLE
from slime_store.store.prepared import prepare_train
from slime_store.store.requests import JournalClearing
from slime_store.testing import assert_same, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_train, opened
from tests.migrations.old_stores import put
from tests.services.filling import RUN
from tests.services.tables import rows


def _deleted(run: Run) -> None:
    run.delete_rollout(0)


def _pruned(run: Run) -> None:
    run.prune(keep_arrays_last=1)


def _replaced(run: Run) -> None:
    run.record_train(0, _large(9), on_conflict="replace")


def _large(seed: int) -> list[list[Sample]]:
    routes = np.frombuffer(np.random.default_rng(seed).bytes(1_000_000), np.uint8)
    return [[make_sample(0, rollout_routed_experts=routes.copy(), metadata={"seen": routes.copy()})]]


@pytest.mark.parametrize("happens", [_deleted, _pruned, _replaced])
@pytest.mark.parametrize("while_doing", ["payload", pytest.param("fingerprint", marks=pytest.mark.slow_on_postgresql)])
def test_what_is_deleted_while_it_is_copied_is_looked_at_again(
    sqlite_url: str, target_url: str, monkeypatch: pytest.MonkeyPatch, happens: Any, while_doing: str
) -> None:
    """A side file goes with its rollout, also beneath a transaction that still sees its row."""
    original, done = getattr(CopyRepository, while_doing), []
    with opened(sqlite_url) as store, opened(sqlite_url) as other:
        run = store.run("run")
        for rollout_id in range(3):
            run.record_train(rollout_id, _large(rollout_id))

        def overtaken(self: CopyRepository, *arguments: Any) -> Any:
            if not done:
                done.append(1)
                happens(other.run("run"))
            return original(self, *arguments)

        monkeypatch.setattr(CopyRepository, while_doing, overtaken)
        copy_store(store, target_url)
        copy_store(store, target_url)
        with opened(target_url, read_only=True) as copy:
            there = copy.run("run", create=False)
            assert there.rollouts(attempts=True) == run.rollouts(attempts=True)
            assert_same(there.load_train(2), run.load_train(2))
    with opened(target_url) as copy:
        assert copy.verify(grace_seconds=-1).ok


@pytest.mark.parametrize("name", [RUN, "new"])
@pytest.mark.parametrize(
    "at",
    [pytest.param(1, marks=pytest.mark.slow_on_postgresql), 2, pytest.param(3, marks=pytest.mark.slow_on_postgresql)],
)
def test_what_somebody_records_into_the_target_meanwhile_is_kept_and_the_copy_refused(
    sqlite_url: str, target_url: str, name: str, at: int
) -> None:
    with opened(sqlite_url) as store:
        run = store.run(RUN)
        journal = run.recovery.journal()
        for rollout_id in range(4):
            journal.put(rollout_id, [Sample(group_index=rollout_id)])  # takes a key, so that some are free
            journal.flush()
            run.record_train(rollout_id, make_train_output(1, 2))
        run.recovery.record_checkpoint(3)
        prepare_train(4, make_train_output(1, 2), clear_journal=JournalClearing(whole=True)).store(run)

        def record(done: int, _total: int) -> None:
            if done == at:
                with opened(target_url) as target:
                    theirs = target.run(name)
                    for rollout_id in (10, 11):
                        theirs.record_train(rollout_id, make_train_output(1, 2, seed=rollout_id))

        with pytest.raises(CopyError, match="which the source has not"):
            copy_store(store, target_url, progress=record)
        for rollout_id in (10, 11):
            assert_same(loaded_train(target_url, rollout_id, name), make_train_output(1, 2, seed=rollout_id))


def test_a_run_that_is_deleted_in_the_source_meanwhile_goes_in_the_target_too(store_url: str, target_url: str) -> None:
    with opened(store_url) as store, opened(store_url) as other:
        for name in ("gone", "kept"):
            store.run(name).record_train(0, make_train_output(1, 2))

        def delete(done: int, _total: int) -> None:
            if done == 1:
                other.delete_run("gone")

        copy_store(store, target_url, progress=delete)
        expected = store.runs()
    with opened(target_url) as copy:
        assert copy.runs() == expected
        assert copy.verify(grace_seconds=-1).problems == ()


def test_an_older_store_is_refused_as_a_target_and_not_upgraded(store_url: str, tmp_path: Path) -> None:
    put("0004", store_url, tmp_path)
    before = rows(store_url, f"SELECT * FROM {VERSION_TABLE}")
    with opened(f"sqlite:///{tmp_path / 'source.db'}") as store:
        store.run(RUN).record_train(0, make_train_output(1, 2))
        with pytest.raises(CopyError, match=r"older schema 0004.*db upgrade"):
            copy_store(store, store_url)
    assert rows(store_url, f"SELECT * FROM {VERSION_TABLE}") == before
