"""A directory of side files that several stores lead to: none of them deletes what is another one's."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from slime_store import RolloutFnTrainOutput, SampleStore
from slime_store.blobs import BlobDirectory, syncing
from slime_store.schema import migrator
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import loaded_train, opened, run_of

RUN = "run"


def output(seed: int) -> RolloutFnTrainOutput:
    """A rollout with one side file."""
    sample = make_sample(seed)
    sample.rollout_routed_experts = np.random.default_rng(seed).integers(0, 256, (5000, 50, 4), dtype=np.uint8)
    return RolloutFnTrainOutput([[sample]])


def record(path: Path, *rollout_ids: int) -> None:
    with run_of(f"sqlite:///{path}", RUN) as run:
        for rollout_id in rollout_ids:
            run.record_train(rollout_id, output(rollout_id))


def check_whole(path: Path, *rollout_ids: int) -> None:
    for rollout_id in rollout_ids:
        assert_same(loaded_train(f"sqlite:///{path}", rollout_id, RUN), output(rollout_id))


def blobs(path: Path) -> Path:
    return path.with_name(f"{path.name}-blobs")


def files(path: Path) -> list[Path]:
    return sorted(blobs(path).glob("*/*"))


def marks(path: Path) -> list[str]:
    return sorted(each.name for each in blobs(path).glob(".*"))


def number_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def mark_of(path: Path) -> str:
    return f".slime_store-of-{path.stat().st_ino}-{number_of(path)}"


def early_mark_of(path: Path) -> str:
    return f".slime_store-of-{path.stat().st_ino}"


def take_number(path: Path) -> None:
    """Make a store one of an earlier version, which had no number."""
    if blobs(path).exists():
        os.rename(blobs(path) / mark_of(path), blobs(path) / early_mark_of(path))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 0")


def make_old(path: Path) -> None:
    for file in files(path):
        os.utime(file, (time.time() - 7200,) * 2)


def fix(store: SampleStore) -> None:
    codes = {(each.code, each.fixable) for each in store.verify(fix=True).problems}
    assert codes <= {("file_unused", False), ("file_temporary", False), ("blob_missing", False)}


def vacuum(store: SampleStore) -> None:
    store.vacuum()


def prune(store: SampleStore) -> None:
    store.run(RUN).prune(keep_arrays_last=0)


def delete(store: SampleStore) -> None:
    store.run(RUN).delete_rollout(0)


def delete_run(store: SampleStore) -> None:
    store.delete_run(RUN)


def replace(store: SampleStore) -> None:
    store.run(RUN).record_train(0, output(9), on_conflict="replace")


EVERY_WAY = pytest.mark.parametrize("act", [fix, vacuum, prune, delete, delete_run, replace])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of three rollouts."""
    path = tmp_path / "runs.db"
    record(path, 0, 1, 2)
    return path


@pytest.mark.parametrize("what", ["new", "backup"])
@EVERY_WAY
def test_a_store_put_in_another_ones_place_deletes_none_of_its_side_files(
    path: Path, what: str, act: Callable[[SampleStore], None]
) -> None:
    with opened(f"sqlite:///{path}") as store:
        store.backup(path.with_name("monday.db"))
    record(path, 3)
    aside = path.with_name("aside.db")
    os.rename(path, aside)
    if what == "backup":
        shutil.copy(path.with_name("monday.db"), path)
    elif act in (prune, delete, delete_run):
        record(path, 0)
    make_old(path)
    with opened(f"sqlite:///{path}") as store:
        act(store)
    os.rename(blobs(path), blobs(aside))
    check_whole(aside, 0, 1, 2, 3)


def cp(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def restore(source: Path, target: Path) -> None:
    """Do as the command ``.restore`` of SQLite's shell."""
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


@pytest.mark.parametrize(("what", "write_into"), [("new", cp), ("new", restore), ("an early backup", cp)])
@EVERY_WAY
def test_a_store_written_into_another_ones_file_deletes_none_of_its_side_files(
    path: Path, what: str, write_into: Callable[[Path, Path], None], act: Callable[[SampleStore], None]
) -> None:
    other, aside = path.with_name("other.db"), path.with_name("aside.db")
    if what == "new":
        SampleStore.open(other).close()
    else:
        with opened(f"sqlite:///{path}") as store:
            store.backup(other)
        take_number(other)
    shutil.copy(path, aside)
    inode, mark = path.stat().st_ino, mark_of(path)
    write_into(other, path)
    assert path.stat().st_ino == inode
    if what == "new" and act in (prune, delete, delete_run):
        record(path, 0)
    make_old(path)
    for each in (act, fix):  # before and after it has left a mark
        with opened(f"sqlite:///{path}") as store:
            each(store)
        record(path, 7)
        assert marks(path) == sorted([mark, mark_of(path)]) and mark != mark_of(path)
        make_old(path)
    write_into(aside, path)
    check_whole(path, 0, 1, 2)


@EVERY_WAY
def test_a_copy_whose_directory_is_a_link_to_the_originals_deletes_none_of_its_side_files(
    tmp_path: Path, act: Callable[[SampleStore], None]
) -> None:
    original, copy = tmp_path / "runs.db", tmp_path / "copy.db"
    (tmp_path / "disk").mkdir()
    for each in (original, copy):
        blobs(each).symlink_to(tmp_path / "disk", target_is_directory=True)
    record(original, 0, 1)
    shutil.copy(original, copy)
    record(original, 2)
    make_old(original)
    with opened(f"sqlite:///{copy}") as store:
        act(store)
    check_whole(original, 0, 1, 2)


def test_a_store_leaves_the_files_of_a_copy_that_writes_into_its_directory(tmp_path: Path, path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    blobs(copy).symlink_to(blobs(path), target_is_directory=True)
    record(copy, 7)
    make_old(path)
    with opened(f"sqlite:///{path}") as store:
        fix(store)
        store.vacuum()
    check_whole(copy, 0, 1, 2, 7)


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_made_up_store_that_leads_to_anothers_directory_deletes_nothing_there(
    tmp_path: Path, path: Path, is_marked: bool
) -> None:
    if not is_marked:  # as one of before there were marks
        (blobs(path) / mark_of(path)).unlink()
    half = files(path)[0].parent / f"{'0' * 32}.blob.tmp"
    half.write_bytes(b"half")
    make_old(path)
    made_up = tmp_path / "e.db"
    blobs(made_up).symlink_to(blobs(path), target_is_directory=True)
    with opened(f"sqlite:///{made_up}") as store:
        report = store.verify(fix=True)
        assert {(each.code, each.fixable) for each in report.problems} == {
            ("file_unused", False),
            ("file_temporary", False),
        }
        store.vacuum()
    assert half.exists() and marks(path) == [mark_of(path)] * is_marked
    check_whole(path, 0, 1, 2)


def test_what_stays_is_said_with_what_to_do(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mark = mark_of(path)
    os.rename(path, path.with_name("aside.db"))
    record(path, 0, 1)
    make_old(path)
    assert caplog.text.count("runs.db-blobs") == 1 and mark in caplog.text  # told when it is opened
    with opened(f"sqlite:///{path}") as store:
        caplog.clear()
        store.run(RUN).prune(keep_arrays_last=0)
        assert [each.levelno for each in caplog.records] == [logging.WARNING] and mark in caplog.text
        problems = store.verify().problems
        assert len(problems) == 5 and all(mark in each.what and not each.fixable for each in problems)
        (blobs(path) / mark).unlink()
        assert all(each.fixed for each in store.verify(fix=True).problems)
        assert files(path) == [] and store.verify().ok


@pytest.mark.parametrize("how", ["renamed", "copied", "synced to the same place", "copied with a link"])
def test_a_store_that_goes_with_its_directory_deletes_as_before(path: Path, tmp_path: Path, how: str) -> None:
    target = tmp_path / "elsewhere" / "runs.db"
    target.parent.mkdir()
    if how == "renamed":
        os.rename(blobs(path), blobs(target))
        os.rename(path, target)
    elif how == "copied":
        shutil.copytree(blobs(path), blobs(target))
        shutil.copy(path, target)
    elif how == "copied with a link":  # the directory has gone to a larger disk
        shutil.copytree(blobs(path), tmp_path / "disk")
        shutil.rmtree(blobs(path))
        blobs(path).symlink_to(tmp_path / "disk", target_is_directory=True)
        target = path
    else:
        os.rename(path.parent, place := path.parent.with_name(f"{path.parent.name}-before"))
        shutil.copytree(place, path.parent)
        target = path
    with opened(f"sqlite:///{target}") as store:
        assert store.run(RUN).prune(keep_arrays_last=1).n_pruned == 2
    assert len(files(target)) == 1
    record(target, 3)
    with opened(f"sqlite:///{target}") as store:
        store.run(RUN).delete_rollout(2)
        assert len(files(target)) == 1 and store.verify().ok
    assert marks(target) == [mark_of(target)]  # what was copied along has gone


def test_a_copy_that_has_deleted_is_known_as_the_owner_from_then_on(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copytree(blobs(path), blobs(copy))
    shutil.copy(path, copy)
    with opened(f"sqlite:///{copy}") as store:
        store.run(RUN).delete_rollout(0)
    os.rename(copy, tmp_path / "aside.db")
    make_old(copy)
    with opened(f"sqlite:///{copy}") as store:
        store.vacuum()
    assert len(files(copy)) == 2


def test_a_store_without_a_mark_gets_one_with_the_next_file(path: Path) -> None:
    (blobs(path) / mark_of(path)).unlink()
    with opened(f"sqlite:///{path}", read_only=True) as store:
        store.run(RUN).load_train(0)
        assert store.verify().ok
    assert marks(path) == []
    record(path, 3)
    assert marks(path) == [mark_of(path)]


@EVERY_WAY
def test_a_store_of_an_earlier_version_gets_a_number_and_goes_on_to_delete(
    path: Path, act: Callable[[SampleStore], None]
) -> None:
    take_number(path)
    stray = files(path)[0].with_name(f"{'0' * 32}.blob")
    stray.write_bytes(b"left over")
    make_old(path)
    with opened(f"sqlite:///{path}") as store:
        assert marks(path) == [early_mark_of(path)] != [mark_of(path)]
        if act is fix:
            assert [each.fixed for each in store.verify(fix=True).problems] == [True]
        else:
            act(store)
            store.vacuum()
    assert not stray.exists()
    record(path, 7)
    assert marks(path) == [mark_of(path)]


def test_a_mark_of_an_earlier_version_keeps_the_files_of_a_store_that_has_another_inode_number(path: Path) -> None:
    aside = path.with_name("aside.db")
    take_number(path)
    os.rename(path, aside)
    record(path, 7)
    make_old(path)
    with opened(f"sqlite:///{path}") as store:
        fix(store)
        store.vacuum()
    os.rename(blobs(path), blobs(aside))
    check_whole(aside, 0, 1, 2)


def test_a_reader_gives_no_number(path: Path) -> None:
    take_number(path)
    before = path.read_bytes()
    with opened(f"sqlite:///{path}", read_only=True) as store:
        store.run(RUN).load_train(0)
        assert store.verify().ok
    assert path.read_bytes() == before and marks(path) == [early_mark_of(path)]


def test_several_that_give_a_number_at_once_give_the_same(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take_number(path)
    original, all_have_seen_none = migrator.ensure_number, threading.Barrier(4)

    def late(*arguments: object) -> int:
        all_have_seen_none.wait(30)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(migrator, "ensure_number", late)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda rollout_id: record(path, rollout_id), range(3, 7)))
    assert number_of(path) != 0 and marks(path) == [mark_of(path)]


def test_several_processes_that_give_a_number_at_once_give_the_same(path: Path) -> None:
    take_number(path)
    code = (
        "import sys; from pathlib import Path; from tests.store.test_owners import record\n"
        "print(flush=True); sys.stdin.readline(); record(Path(sys.argv[1]), int(sys.argv[2]))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code, path, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for n in (3, 4)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
    for process in processes:
        process.communicate(b"\n")
        assert process.returncode == 0
    assert number_of(path) != 0 and marks(path) == [mark_of(path)]
    check_whole(path, 0, 1, 2, 3, 4)


def test_a_store_that_nobody_can_write_to_now_is_opened_without_a_number(path: Path) -> None:
    take_number(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with opened(f"sqlite:///{path}", busy_timeout=0.1) as store:
            store.run(RUN).load_train(0)
            writer.execute("COMMIT")
            store.run(RUN).delete_rollout(0)
            assert len(files(path)) == 2 and number_of(path) == 0
    record(path, 3)
    assert number_of(path) != 0 and marks(path) == [mark_of(path)]


def test_a_backup_has_a_mark_of_its_own(path: Path, tmp_path: Path) -> None:
    backup = tmp_path / "monday.db"
    with opened(f"sqlite:///{path}") as store:
        store.backup(backup)
    assert marks(backup) == [mark_of(backup)] != marks(path) and number_of(backup) == number_of(path)
    for each in (path, backup):
        assert (blobs(each) / mark_of(each)).read_text() == f"{blobs(each).stat().st_ino}\n{each}\n"
    with opened(f"sqlite:///{backup}") as store:
        store.run(RUN).delete_rollout(0)
        assert len(files(backup)) == 2 and store.verify().problems == ()
    check_whole(path, 0, 1, 2)
    path.unlink()
    shutil.rmtree(blobs(path))
    os.rename(backup, path)
    os.rename(blobs(backup), blobs(path))  # restored, as the docs say
    with opened(f"sqlite:///{path}") as store:
        store.run(RUN).delete_rollout(1)
        assert len(files(path)) == 1


def test_the_backup_of_a_server_has_a_mark_of_its_own(store_url: str, tmp_path: Path) -> None:
    backup = tmp_path / "monday.db"
    with run_of(store_url, RUN) as run:
        run.record_train(0, output(0))
    with opened(store_url, read_only=True) as store:
        store.backup(backup)
    assert marks(backup) == [mark_of(backup)] and number_of(backup) != 0


def test_the_backup_of_a_store_without_a_number_is_known_as_its_owner(path: Path, tmp_path: Path) -> None:
    backup = tmp_path / "monday.db"
    take_number(path)
    with opened(f"sqlite:///{path}", read_only=True) as store:
        store.backup(backup)
    assert marks(backup) == [early_mark_of(backup)]
    with opened(f"sqlite:///{backup}") as store:
        store.run(RUN).delete_rollout(0)
    assert len(files(backup)) == 2 and marks(backup) == [mark_of(backup)]


def test_a_backup_whose_name_is_taken_meanwhile_leaves_no_mark_in_the_way(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "taken.db"

    def beaten(*_: object) -> None:
        record(taken, 5)
        raise FileExistsError(taken)

    monkeypatch.setattr("slime_store.store.backup.publish", beaten)
    with opened(f"sqlite:///{path}") as store, pytest.raises(Exception, match="exists already"):
        store.backup(taken)
    assert marks(taken) == [mark_of(taken)]
    with opened(f"sqlite:///{taken}") as store:
        assert store.verify(fix=True, grace_seconds=-1).ok and len(files(taken)) == 1


@pytest.mark.parametrize("kind", ["a link", "a pipe", "a directory", "nonsense", "the database"])
def test_a_mark_that_is_none_keeps_files_and_is_not_followed(path: Path, kind: str) -> None:
    mark = blobs(path) / ".slime_store-of-1"
    secret = path.with_name("secret")
    secret.write_text("1\nsecret\n")
    if kind == "a link":
        mark.symlink_to(secret)
    elif kind == "a pipe":
        os.mkfifo(mark)
    elif kind == "a directory":
        mark.mkdir()
    else:
        mark.write_text("nonsense")
    with opened(f"sqlite:///{path}") as store:
        if kind == "the database":
            mark.unlink()
            os.link(path.with_name("runs.db-wal"), mark)
        stray = files(path)[0].with_name(f"{'0' * 32}.blob")
        stray.write_bytes(b"left over")
        [problem] = store.verify(fix=True, grace_seconds=-1).problems
        assert problem.code == "file_unused" and not problem.fixable and "secret" not in problem.what
        assert stray.exists()


def test_a_mark_that_a_crash_has_left_half_written_is_removed(path: Path) -> None:
    half = blobs(path) / f"{mark_of(path)}.{'0' * 32}.tmp"
    half.write_bytes(b"1")
    with opened(f"sqlite:///{path}") as store:
        assert store.verify(fix=True).problems == ()
        os.utime(half, (0, 0))
        assert [(each.code, each.fixed) for each in store.verify(fix=True).problems] == [("file_temporary", True)]
    assert marks(path) == [mark_of(path)]


def test_marks_are_written_whole_and_synced(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    other = tmp_path / "other.db"
    with opened(f"sqlite:///{other}") as store:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(Exception, match="No space"):
            store.run(RUN).record_train(0, output(0))
        assert marks(other) == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
@pytest.mark.parametrize("fails", ["sync_file", "sync_directory"])
def test_a_process_that_fails_leaves_the_mark_that_another_one_has_left(
    path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, error: BaseException
) -> None:
    [mark], real = marks(path), getattr(syncing, fails)
    text = (blobs(path) / mark).read_bytes()
    (blobs(path) / mark).unlink()

    def failing(_: object) -> None:
        monkeypatch.setattr(syncing, fails, real)
        BlobDirectory.beside(path, number_of(path)).mark()  # the other process is faster
        raise error

    monkeypatch.setattr(syncing, fails, failing)
    with pytest.raises(type(error)):
        BlobDirectory.beside(path, number_of(path)).mark()
    assert marks(path) == [mark] and (blobs(path) / mark).read_bytes() == text


def test_of_very_many_marks_a_few_are_shown(path: Path) -> None:
    for number in range(1, 301):
        (blobs(path) / f".slime_store-of-{number}").write_text(f"{blobs(path).stat().st_ino}\n/x\n")
    others = BlobDirectory.beside(path, number_of(path)).others()
    assert others is not None and others.count(".slime_store-of-") == 5 and "and 295 more" in others
