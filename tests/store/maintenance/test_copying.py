"""``copy_store``: all of a store in another one, on either database, resumed after a kill, compared at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slime_store import Sample, SampleStore, copy_store
from slime_store.errors import ConnectionFailedError, CopyError
from slime_store.repositories.copying import CopyRepository
from slime_store.testing import assert_same, make_train_output
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened
from tests.services.filling import RUN, make_filled, rich_train, side_files
from tests.services.tables import counts, execute, rows


def same_content(one: str, other: str) -> None:
    for rollout_id, attempt in ((0, 1), (0, 2), (1, 1), (5, 1)):
        assert_same(loaded_train(one, rollout_id, attempt=attempt), loaded_train(other, rollout_id, attempt=attempt))
    assert_same(loaded_eval(one, 0), loaded_eval(other, 0))
    with opened(one, read_only=True) as first, opened(other, read_only=True) as second:
        assert first.runs() == second.runs()
        mine, theirs = first.run(RUN, create=False), second.run(RUN, create=False)
        assert mine.rollouts(attempts=True) == theirs.rollouts(attempts=True)
        assert mine.weight_versions() == theirs.weight_versions()
        assert_same(mine.resume(), theirs.resume())


def test_a_copy_holds_everything_and_can_be_gone_on_with(store_url: str, target_url: str) -> None:
    make_filled(store_url)
    steps: list[tuple[int, int]] = []
    with opened(store_url, read_only=True) as store:
        report = copy_store(store, target_url, progress=lambda done, total: steps.append((done, total)))
    assert (report.n_runs, report.n_copied, report.n_present, report.n_verified) == (2, 6, 0, 6)
    assert steps == [(n, 12) for n in range(1, 13)]
    assert "***" in report.url or report.url.startswith("/")
    same_content(store_url, target_url)
    with opened(target_url) as store:
        assert store.verify().ok
        run = store.run(RUN)
        assert run.record_train(6, rich_train(6)).session == 2  # keys that were copied are not given again
        run.record_weight_version("77")
        store.run("new").record_train(0, make_train_output())
        run.delete_rollout(0)
        assert store.verify().ok


def test_a_copy_of_a_copy_is_the_same_store(sqlite_url: str, tmp_path: Path, postgres_url: str) -> None:
    make_filled(sqlite_url)
    back = f"sqlite:///{tmp_path / 'back.db'}"
    for source, target in ((sqlite_url, postgres_url), (postgres_url, back)):
        with opened(source, read_only=True) as store:
            copy_store(store, target)
    assert counts(sqlite_url) == counts(back)
    assert len(side_files(back)) == len(side_files(sqlite_url))
    same_content(sqlite_url, back)


def test_a_copy_that_was_interrupted_goes_on_and_a_finished_one_does_nothing(
    store_url: str, target_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_filled(store_url)
    original, calls = CopyRepository.add_rollout, []

    def interrupted(self: CopyRepository, *arguments: Any) -> None:
        calls.append(1)
        original(self, *arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt  # after its rows, before the commit

    with opened(store_url, read_only=True) as store:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(CopyRepository, "add_rollout", interrupted)
            copy_store(store, target_url)
        report = copy_store(store, target_url)
        assert (report.n_present, report.n_copied) == (2, 4)
        report = copy_store(store, target_url)
        assert (report.n_present, report.n_copied, report.n_deleted, report.n_verified) == (6, 0, 0, 6)
    same_content(store_url, target_url)
    with opened(target_url) as copy:
        assert copy.verify(grace_seconds=-1).problems == ()  # not even a side file too many


def test_a_copy_follows_what_was_recorded_described_and_deleted_since(store_url: str, target_url: str) -> None:
    make_filled(store_url)
    with opened(store_url) as store:
        copy_store(store, target_url)
        run = store.run(RUN)
        run.delete_rollout(1)
        run.record_train(8, rich_train(2), state={"cursor": 9})  # the same prompts and pictures, under new keys
        run.recovery.record_checkpoint(8)
        run.record_weight_version("3", metadata={"note": "better"})
        report = copy_store(store, target_url)
        assert (report.n_copied, report.n_deleted) == (1, 1)
        expected = run.weight_versions(), run.resume(), run.rollouts(attempts=True)
    with opened(target_url) as copy:
        run = copy.run(RUN)
        assert_same((run.weight_versions(), run.resume(), run.rollouts(attempts=True)), expected)
        assert_same(run.load_train(8), rich_train(2))
        assert copy.verify(grace_seconds=-1).problems == ()


def test_a_copy_follows_the_pruning_of_what_has_no_arrays(store_url: str, target_url: str) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        for i in range(3):
            sample = Sample(prompt="x", response="y", reward=1.0)
            sample.tokens = None  # type: ignore[assignment]
            run.record_eval(i, {"math": {"rewards": [1.0], "samples": [sample]}})
        copy_store(store, target_url)
        assert run.prune(keep_arrays_last=1).n_pruned == 2
        copy_store(store, target_url)
        with opened(target_url) as target:
            assert target.run(RUN).rollouts("eval") == run.rollouts("eval")


def test_another_store_and_the_store_itself_are_refused(store_url: str, target_url: str) -> None:
    make_filled(store_url)
    with opened(target_url) as other:
        other.run("mine").record_train(0, make_train_output())
    before = counts(target_url)
    with opened(store_url) as store:
        with pytest.raises(CopyError, match="run 'mine'"):
            copy_store(store, target_url)
        with pytest.raises(CopyError, match="the store itself"):
            copy_store(store, store_url)
    assert counts(target_url) == before


def test_a_copy_that_somebody_has_written_to_is_refused(store_url: str, target_url: str) -> None:
    make_filled(store_url)
    with opened(store_url) as store:
        copy_store(store, target_url)
        with opened(target_url) as copy:
            copy.run(RUN).record_train(50, make_train_output())
        with pytest.raises(CopyError, match="a session of process"):
            copy_store(store, target_url)
    assert_same(loaded_train(target_url, 50), make_train_output())


def test_a_restored_backup_does_not_take_what_it_lacks_from_a_newer_copy(
    tmp_path: Path, store_url: str, target_url: str
) -> None:
    with opened(str(tmp_path / "original.db")) as original:
        run = original.run(RUN)
        run.record_train(0, make_train_output(1, 2))
        copy_store(original, store_url)
        run.record_train(1, make_train_output(1, 2, seed=1))
        copy_store(original, target_url)
    before = counts(target_url)
    with opened(store_url) as restored:
        with pytest.raises(CopyError, match=r"1 rollouts, train rollout 1 among them, that the source never had"):
            copy_store(restored, target_url)
        restored.run(RUN).record_train(1, make_train_output(1, 2, seed=2))  # under the key of what is lost
        with pytest.raises(CopyError, match="that the source never had"):
            copy_store(restored, target_url)
    assert counts(target_url) == before
    assert_same(loaded_train(target_url, 1), make_train_output(1, 2, seed=1))


def test_a_copy_goes_on_after_a_whole_run_once_it_is_deleted_there_too(store_url: str, target_url: str) -> None:
    """Nothing tells a run that was deleted in the source from one that somebody made in the target."""
    with opened(store_url) as store:
        for name in ("gone", "kept"):
            store.run(name).record_train(0, make_train_output(1, 2))
        copy_store(store, target_url)
        store.delete_run("gone")
        store.run("kept").record_train(1, make_train_output(1, 2))
        before = counts(target_url)
        with pytest.raises(CopyError, match=r"run 'gone', which the source has not.*delete it in the target too"):
            copy_store(store, target_url)
        assert counts(target_url) == before
        with opened(target_url) as copy:
            copy.delete_run("gone")
        report = copy_store(store, target_url)
        assert (report.n_runs, report.n_present, report.n_copied, report.n_verified) == (1, 1, 1, 2)
        store.run("gone").record_train(0, make_train_output(1, 1))  # its name, but not its keys, are given again
        assert copy_store(store, target_url).n_runs == 2
        expected = store.runs()
    with opened(target_url) as copy:
        assert copy.runs() == expected
        assert copy.verify(grace_seconds=-1).problems == ()


def test_a_difference_between_the_two_is_found(store_url: str, target_url: str) -> None:
    make_filled(store_url)
    with opened(store_url, read_only=True) as store:
        copy_store(store, target_url)
        (pk,) = rows(store_url, "SELECT id FROM rollouts WHERE rollout_id = 5")[0]
        execute(target_url, f"UPDATE sample_texts SET label = 'x' WHERE rollout_pk = {pk} AND position = 3")
        with pytest.raises(CopyError, match="train rollout 5, attempt 1 is not as in the source"):
            copy_store(store, target_url)


def test_what_is_recorded_while_copying_is_copied_too(store_url: str, target_url: str) -> None:
    make_filled(store_url)
    with opened(store_url) as store, opened(store_url) as other:

        def record(done: int, _total: int) -> None:
            if done == 1:
                other.run("late").record_train(0, rich_train(3))

        report = copy_store(store, target_url, progress=record)
    assert (report.n_runs, report.n_copied) == (3, 7)
    with SampleStore.open(target_url, read_only=True) as copy:
        assert_same(copy.run("late", create=False).load_train(0), rich_train(3))


KILLED = """
import os, sys
from slime_store import SampleStore, copy_store
from slime_store.repositories.copying import CopyRepository
original, left = CopyRepository.add_rollout, int(sys.argv[3])
def killed(*arguments):
    global left
    original(*arguments)
    left -= 1
    if left == 0:
        os._exit(9)
CopyRepository.add_rollout = killed
copy_store(SampleStore.open(sys.argv[1], read_only=True), sys.argv[2])
"""


def test_h8_a_copy_whose_process_was_killed_goes_on(sqlite_url: str, target_url: str) -> None:
    make_filled(sqlite_url)
    for n in (1, 3):
        done = subprocess.run([sys.executable, "-c", KILLED, sqlite_url, target_url, str(n)])
        assert done.returncode == 9
    with opened(sqlite_url, read_only=True) as store:
        report = copy_store(store, target_url)
    assert (report.n_present, report.n_copied, report.n_verified) == (2, 4, 6)
    same_content(sqlite_url, target_url)
    with opened(target_url) as copy:
        found = copy.verify(fix=True, grace_seconds=-1)
        assert found.ok and {each.code for each in found.problems} <= {"file_unused"}  # what the killed ones left
        assert copy.verify(grace_seconds=-1).problems == ()


@pytest.mark.postgresql
@pytest.mark.parametrize("reads", ["identity", "prompts", "shared_blobs", "payload", "stream", "size", "fingerprint"])
def test_a_source_that_fails_is_the_one_that_the_error_names(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    original = getattr(CopyRepository, reads)

    def failing(self: CopyRepository, *arguments: Any) -> Any:
        if self.connection.dialect.name == "postgresql":
            monkeypatch.setattr(CopyRepository, reads, original)
            self.connection.connection.driver_connection.close()  # type: ignore[union-attr]
        return original(self, *arguments)

    target = tmp_path / "copy.db"
    make_filled(postgres_url)
    with opened(postgres_url, read_only=True) as store:
        monkeypatch.setattr(CopyRepository, reads, failing)
        with pytest.raises(ConnectionFailedError) as caught:
            copy_store(store, target)
        assert caught.value.url == store.url and "copy.db" not in str(caught.value)
        assert copy_store(store, target).n_verified == 6
