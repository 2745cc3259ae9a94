"""``store.backup()``: one moment of a store, whole or not at all, and a store like any other."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest

from slime_store import SampleStore
from slime_store.errors import BackupError
from slime_store.testing import assert_same, make_train_output
from slime_store.testing.contract.opening import loaded_eval, loaded_train, opened
from tests.services.files import let_listing_fail
from tests.services.filling import RUN, fill, make_filled, rich_train, side_files
from tests.services.tables import counts


def test_a_backup_is_a_store_with_the_same_content(store_url: str, tmp_path: Path) -> None:
    make_filled(store_url)
    backup = tmp_path / "backups"
    backup.mkdir()
    with opened(store_url, read_only=True) as store:
        report = store.backup(backup / "monday.db")
    url = f"sqlite:///{backup / 'monday.db'}"
    assert counts(url) | {"blob_parts": 0} == counts(store_url) | {"blob_parts": 0}  # large ones are in files here
    assert report.n_files == len(side_files(url)) == 4 and report.missing_files == ()
    assert report.size_bytes == (backup / "monday.db").stat().st_size
    assert sorted(path.name for path in backup.iterdir()) == ["monday.db", "monday.db-blobs"]
    for attempt in (1, 2):
        expected = loaded_train(store_url, 0, attempt=attempt)
        assert_same(loaded_train(url, 0, attempt=attempt), expected)
    assert_same(loaded_eval(url, 0), loaded_eval(store_url, 0))
    with opened(url) as store:  # and it can be gone on with
        assert store.verify().ok
        run = store.run(RUN)
        assert run.resume().next_rollout_id == 2
        run.record_train(9, make_train_output())
        run.delete_rollout(0)
    with opened(store_url) as store:
        assert store.verify().ok
        assert_same(store.run(RUN).load_train(0, attempt=1), rich_train(0))


def test_an_existing_target_is_refused_and_left_alone(store_url: str, tmp_path: Path) -> None:
    with opened(store_url) as store:
        for name in ("taken.db", "other.db-blobs"):
            (tmp_path / name).write_text("mine")
        for name in ("taken.db", "other.db"):
            with pytest.raises(BackupError, match="exists already"):
                store.backup(tmp_path / name)
        with pytest.raises(BackupError, match="does not exist"):
            store.backup(tmp_path / "nowhere" / "a.db")
    assert (tmp_path / "taken.db").read_text() == (tmp_path / "other.db-blobs").read_text() == "mine"
    assert not list(tmp_path.glob(".slime_store-*"))


def test_a_failing_backup_leaves_nothing_behind(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_filled(sqlite_url)
    before = sorted(tmp_path.iterdir())

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with opened(sqlite_url) as store:
        for broken in ("os.link", "os.rename"):
            with monkeypatch.context() as patch:
                patch.setattr(broken, fail)
                if broken == "os.link":
                    patch.setattr("shutil.copyfileobj", fail)
                with pytest.raises(Exception, match="No space left"):
                    store.backup(tmp_path / "backup.db")
            assert [p for p in sorted(tmp_path.iterdir()) if not p.name.startswith("store.db-")] == [
                p for p in before if not p.name.startswith("store.db-")
            ]
        store.backup(tmp_path / "backup.db")


def test_side_files_that_cannot_be_listed_let_a_backup_fail(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_filled(sqlite_url)
    (tmp_path / "backups").mkdir()
    with opened(sqlite_url) as store:
        let_listing_fail(monkeypatch, tmp_path / "backups")
        with pytest.raises(BackupError, match="Too many open files"):
            store.backup(tmp_path / "backups" / "monday.db")
        monkeypatch.undo()
        assert not list((tmp_path / "backups").glob("monday*"))
        assert store.backup(tmp_path / "backups" / "monday.db").n_files == 4


def test_side_files_are_copied_where_they_cannot_be_linked(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_filled(sqlite_url)

    def no_link(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_link)
    with opened(sqlite_url) as store:
        store.backup(tmp_path / "backup.db")
    copies = side_files(f"sqlite:///{tmp_path / 'backup.db'}")
    assert [path.read_bytes() for path in copies] == [path.read_bytes() for path in side_files(sqlite_url)]
    assert all(path.stat().st_nlink == 1 for path in copies)
    with opened(f"sqlite:///{tmp_path / 'backup.db'}") as store:
        assert store.verify().ok


def test_of_two_backups_at_once_without_links_the_first_one_keeps_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, done = os.rename, list[str]()

    def no_link(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    def slow(source: Path, target: Path) -> None:
        time.sleep(0.1)  # as long as it takes the other one to give its backup the name
        real(source, target)

    def work(name: str) -> None:
        with SampleStore.open(tmp_path / f"{name}.db") as store, contextlib.suppress(BackupError):
            store.backup(tmp_path / "backup.db")
            done.append(name)

    for name in "ab":
        with SampleStore.open(tmp_path / f"{name}.db") as store:
            store.run(name).record_train(0, make_train_output(1, 1))
    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(os, "rename", slow)
    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with SampleStore.open(tmp_path / "backup.db", read_only=True) as store:
        assert [run.name for run in store.runs()] == done


def test_a_store_in_memory_can_be_backed_up(tmp_path: Path) -> None:
    with SampleStore.open(":memory:") as store:
        fill(store)
        store.backup(tmp_path / "saved.db")
    assert_same(loaded_train(f"sqlite:///{tmp_path / 'saved.db'}", 1), rich_train(2))


def test_a_store_that_lost_a_side_file_is_backed_up_and_says_so(sqlite_url: str, tmp_path: Path) -> None:
    make_filled(sqlite_url)
    lost = side_files(sqlite_url)[0]
    lost.unlink()
    with opened(sqlite_url) as store:
        report = store.backup(tmp_path / "backup.db")
    assert report.missing_files == (f"{lost.parent.name}/{lost.name}",) and report.n_files == 3


def test_backups_taken_while_others_record_and_delete_are_each_whole(store_url: str, tmp_path: Path) -> None:
    make_filled(store_url)
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            with opened(store_url) as store:
                run = store.run(RUN)
                for n in range(1000):
                    if stop.is_set():
                        return
                    run.record_train(100 + n, rich_train(n))
                    if n:
                        run.delete_rollout(99 + n)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with opened(store_url, read_only=True) as store:
            for n in range(3):
                store.backup(tmp_path / f"{n}.db")
    finally:
        stop.set()
        writer.join()
    assert failures == []
    for n in range(3):
        with opened(f"sqlite:///{tmp_path / f'{n}.db'}") as store:
            report = store.verify()
            assert report.problems == ()
            assert report.counts["rollouts"] >= 6
