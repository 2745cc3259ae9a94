"""``copy_store`` into a place where somebody else writes, or copies: nothing that was recorded there is deleted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_store import SampleStore, copy_store
from slime_store.errors import CopyError
from slime_store.interchange import import_path
from slime_store.repositories.copying import CopyRepository
from slime_store.testing import assert_same, make_train_output
from slime_store.testing.contract.opening import loaded_train, opened

OLD, NEW = "old", "new"
SEED = 50


def make_source(url: str, *, with_gaps: bool = True) -> SampleStore:
    """Record three rollouts; their keys have gaps, as where the journal's groups have gone."""
    store = SampleStore.open(url)
    run = store.run(OLD)
    for rollout_id in range(3):
        run.record_train(rollout_id, make_train_output(1, 2, seed=rollout_id))
        if with_gaps:
            run.record_train(99, make_train_output(1, 1))
            run.delete_rollout(99)
    return store


def record(url: str, run: str) -> None:
    with opened(url) as trainer:
        trainer.run(run).record_train(SEED, make_train_output(1, 2, seed=SEED))


def take_in(url: str, spool: Path) -> None:
    with opened(url) as trainer:
        assert len(import_path(trainer.run(OLD), spool).recorded) == 1


def spooled(path: Path) -> Path:
    """Return a spool file of this process, which has a session in the source already."""
    with SampleStore.open(path) as store:
        store.run(OLD).record_train(SEED, make_train_output(1, 2, seed=SEED))
    return path


def at_step(number: int, act: Callable[[], None]) -> Callable[[int, int], None]:
    return lambda done, _total: act() if done == number else None


def is_kept(url: str, run: str = OLD) -> None:
    assert_same(loaded_train(url, SEED, run), make_train_output(1, 2, seed=SEED))
    with opened(url) as target:
        assert target.verify().ok


@pytest.mark.parametrize("run", [OLD, NEW])
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow_on_postgresql), 3])
def test_what_is_recorded_under_the_keys_that_are_to_be_copied_stays(
    sqlite_url: str, target_url: str, run: str, step: int
) -> None:
    with make_source(sqlite_url, with_gaps=False) as source:
        watch = at_step(step, lambda: record(target_url, run))
        with pytest.raises(CopyError, match="which the source has not"):
            copy_store(source, target_url, progress=watch)
    is_kept(target_url, run)


@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow_on_postgresql), 2, 3])
@pytest.mark.parametrize("with_gaps", [True, pytest.param(False, marks=pytest.mark.slow_on_postgresql)])
def test_what_is_imported_into_the_target_meanwhile_stays(
    sqlite_url: str, target_url: str, tmp_path: Path, step: int, with_gaps: bool
) -> None:
    """It belongs to a session that the source has, too."""
    with make_source(sqlite_url, with_gaps=with_gaps) as source:
        spool = spooled(tmp_path / "spool.db")
        watch = at_step(step, lambda: take_in(target_url, spool))
        with pytest.raises(CopyError, match=f"train rollout {SEED}"):
            copy_store(source, target_url, progress=watch)
    is_kept(target_url)


def test_what_was_imported_into_a_copy_is_not_taken_for_deleted_in_the_source(
    sqlite_url: str, target_url: str, tmp_path: Path
) -> None:
    with make_source(sqlite_url) as source:
        spool = spooled(tmp_path / "spool.db")
        copy_store(source, target_url)
        take_in(target_url, spool)
        source.run(OLD).record_train(3, make_train_output(1, 2))
        with pytest.raises(CopyError, match=f"train rollout {SEED} .*import.*delete it in the target too"):
            copy_store(source, target_url)
        is_kept(target_url)
        with opened(target_url) as target:
            target.run(OLD).delete_rollout(SEED)
        assert copy_store(source, target_url).n_verified == 4


def test_a_key_or_number_that_is_taken_meanwhile_is_told_as_such(
    sqlite_url: str, target_url: str, tmp_path: Path
) -> None:
    with make_source(sqlite_url) as source:
        with SampleStore.open(tmp_path / "spool.db") as spool:
            spool.run(OLD).record_train(2, make_train_output(1, 2, seed=SEED))
        watch = at_step(1, lambda: take_in(target_url, tmp_path / "spool.db"))
        with pytest.raises(CopyError, match="does not fit beside what it holds"):
            copy_store(source, target_url, progress=watch)
    assert_same(loaded_train(target_url, 2, OLD), make_train_output(1, 2, seed=SEED))


def test_a_record_waits_for_the_transaction_that_deletes(
    sqlite_url: str, target_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[bool] = []
    thread = threading.Thread(target=lambda: recorded.append(record(target_url, OLD) is None))
    with make_source(sqlite_url) as source:
        copy_store(source, target_url)
        source.run(OLD).record_train(3, make_train_output(1, 2))
        original = CopyRepository.make_alike

        def alike(*arguments: Any) -> None:
            if not thread.ident:
                thread.start()
                thread.join(0.2)
                assert not recorded
            original(*arguments)

        monkeypatch.setattr(CopyRepository, "make_alike", alike)
        watch = at_step(1, thread.join)
        with pytest.raises(CopyError, match="a session of process"):
            copy_store(source, target_url, progress=watch)
    thread.join()
    assert recorded
    is_kept(target_url)


def test_two_copies_at_once_of_a_growing_source_end_alike(sqlite_url: str, target_url: str) -> None:
    with make_source(sqlite_url) as source:

        def overtake() -> None:
            record(sqlite_url, NEW)
            assert copy_store(source, target_url).n_copied == 3

        report = copy_store(source, target_url, progress=at_step(1, overtake))
        assert (report.n_copied, report.n_verified) == (1, 4)
    is_kept(target_url, NEW)
