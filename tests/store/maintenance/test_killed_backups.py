"""A backup whose process is killed: what it leaves is found and removed, and nothing that is somebody's."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from slime_store import RolloutFnTrainOutput, SampleStore
from slime_store.store import backup_drafts
from slime_store.testing import make_sample
from slime_store.testing.contract.opening import opened

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")

_STEPS = {"open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "fcntl.flock", "sqlite3.connect"}
"""Events of Python's audit before any of which a process may be killed."""

MARK = ".slime_store-draft"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SampleStore]:
    """A store with one side file, in a directory of its own."""
    (tmp_path / "a").mkdir()
    with SampleStore.open(tmp_path / "a" / "store.db") as store:
        record(store, 0)
        yield store


def record(store: SampleStore, rollout_id: int) -> None:
    sample = make_sample(rollout_id)
    sample.rollout_routed_experts = np.random.default_rng(rollout_id).integers(0, 256, (5000, 50, 4), dtype=np.uint8)
    store.run("run").record_train(rollout_id, RolloutFnTrainOutput([[sample]]))


def killed_backup(url: str, path: Path, kill: Callable[[pytest.MonkeyPatch], None]) -> bool:
    """Begin a backup in a process that ``kill`` has killed; tell whether it was."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException), opened(url, read_only=True) as store:
            kill(pytest.MonkeyPatch())
            store.backup(path)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def while_pages_are_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("slime_store.store.backup.copy_pages", die)


def between_its_renames(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("slime_store.store.backup.publish", die)


def when_it_has_its_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("slime_store.store.backup.unmark", die)


def at_step(number: int) -> Callable[[pytest.MonkeyPatch], None]:
    def kill(_: pytest.MonkeyPatch) -> None:
        steps = iter(range(number))
        sys.addaudithook(lambda event, _: die() if event in _STEPS and next(steps, None) is None else None)

    return kill


def files_of(database: Path) -> list[Path]:
    return sorted(Path(f"{database}-blobs").glob("*/*"))


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.endswith(("-wal", "-shm")))


def _check_each(store: SampleStore, tmp_path: Path, steps: range) -> bool:
    """Kill a backup at each step, then make it; tell whether there was a step that is none any more."""
    for number in steps:
        directory = tmp_path / f"{number}"
        directory.mkdir()
        was_killed = killed_backup(store.url, directory / "back.db", at_step(number))
        if (directory / "back.db").exists():
            with opened(f"sqlite:///{directory / 'back.db'}") as backup:
                assert backup.verify(fix=True).ok
            assert names_in(directory) == ["back.db", "back.db-blobs"]
            os.rename(directory / "back.db", directory / "earlier.db")
            os.rename(directory / "back.db-blobs", directory / "earlier.db-blobs")
        store.backup(directory / "back.db")
        unmarked = {name for found in backup_drafts._found(directory) for name in found.names}
        assert all(set(os.listdir(directory / name)) <= {f"{MARK}.tmp"} for name in unmarked)  # killed before its mark
        left = set(names_in(directory)) - unmarked
        assert {name for name in left if not name.startswith("earlier")} == {"back.db", "back.db-blobs"}
        with opened(f"sqlite:///{directory / 'back.db'}") as backup:
            problems = backup.verify(fix=True, grace_seconds=-10).problems
            assert len(problems) == len(unmarked) and all(each.fixed for each in problems)
        assert not backup_drafts._found(directory)
        shutil.rmtree(directory)
        if not was_killed:
            return True
    return False


def test_after_a_kill_at_a_step_the_same_backup_can_be_made(store: SampleStore, tmp_path: Path) -> None:
    assert _check_each(store, tmp_path, range(1, 100, 8))


@pytest.mark.slow
def test_after_a_kill_at_any_step_the_same_backup_can_be_made(store: SampleStore, tmp_path: Path) -> None:
    assert _check_each(store, tmp_path, range(100))


@pytest.mark.parametrize("kill", [while_pages_are_copied, between_its_renames])
def test_the_space_of_a_killed_backup_is_given_back(
    store: SampleStore, tmp_path: Path, kill: Callable[[pytest.MonkeyPatch], None]
) -> None:
    directory = tmp_path / "a"
    [file] = files_of(directory / "store.db")
    before = names_in(directory)
    assert killed_backup(store.url, directory / "back.db", kill)
    assert names_in(directory) != before and file.stat().st_nlink == 2
    problems = store.verify(fix=True).problems
    assert {problem.code for problem in problems} == {"file_temporary"} and all(each.fixed for each in problems)
    assert names_in(directory) == before and file.stat().st_nlink == 1
    assert store.verify().problems == ()


def test_what_was_killed_is_removed_by_any_other_backup_to_that_directory(store: SampleStore, tmp_path: Path) -> None:
    for kill in (while_pages_are_copied, between_its_renames, when_it_has_its_name):
        assert killed_backup(store.url, tmp_path / f"{kill.__name__}.db", kill)
    store.backup(tmp_path / "other.db")
    whole = [f"{name}.db{suffix}" for name in ("other", "when_it_has_its_name") for suffix in ("", "-blobs")]
    assert names_in(tmp_path) == ["a", *whole]
    for name in ("other", "when_it_has_its_name"):
        with opened(f"sqlite:///{tmp_path / name}.db") as backup:
            assert backup.verify(fix=True).problems == () and len(files_of(tmp_path / f"{name}.db")) == 1
    assert MARK not in os.listdir(tmp_path / "when_it_has_its_name.db-blobs")


def test_a_directory_that_has_become_a_stores_is_left_alone(store: SampleStore, tmp_path: Path) -> None:
    assert killed_backup(store.url, tmp_path / "back.db", between_its_renames)
    with SampleStore.open(tmp_path / "back.db") as mine:
        record(mine, 1)
        files = files_of(tmp_path / "back.db")
        store.backup(tmp_path / "other.db")
        assert files_of(tmp_path / "back.db") == files and len(files) == 2
        assert mine.verify(fix=True, grace_seconds=-10).ok
        assert len(files_of(tmp_path / "back.db")) == 1 and mine.run("run").load_train(1).samples


def test_a_directory_stays_whose_backup_was_moved_away_after_the_kill(store: SampleStore, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    assert killed_backup(store.url, tmp_path / "back.db", when_it_has_its_name)
    os.rename(tmp_path / "back.db", tmp_path / "b" / "back.db")
    store.backup(tmp_path / "other.db")
    os.rename(tmp_path / "back.db-blobs", tmp_path / "b" / "back.db-blobs")
    with opened(f"sqlite:///{tmp_path / 'b' / 'back.db'}") as backup:
        assert backup.verify().problems == ()


def test_what_cannot_be_removed_yet_is_removed_later(
    store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert killed_backup(store.url, tmp_path / "back.db", between_its_renames)
    assert killed_backup(store.url, tmp_path / "b.db", while_pages_are_copied)
    before = names_in(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise OSError(13, "Permission denied")

    with monkeypatch.context() as patch:
        for name in ("rename", "unlink", "rmdir"):
            patch.setattr(os, name, fail)
        backup_drafts.remove_left_overs(tmp_path)
    assert names_in(tmp_path) == before
    store.backup(tmp_path / "back.db")
    assert names_in(tmp_path) == ["a", "back.db", "back.db-blobs"]


def test_a_directory_without_a_mark_is_somebodys(store: SampleStore, tmp_path: Path) -> None:
    assert killed_backup(store.url, tmp_path / "back.db", between_its_renames)
    (tmp_path / "back.db-blobs" / MARK).write_text("../back.db\nhost\n")
    (tmp_path / "mine.db-blobs").mkdir()
    store.backup(tmp_path / "other.db")
    assert {"back.db-blobs", "mine.db-blobs"} < set(names_in(tmp_path))


def test_a_backup_in_the_making_is_left_alone(
    store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slime_store.store import backup as room

    copy_pages, seen = room.copy_pages, list[int]()

    def collect() -> None:
        """What others do meanwhile: threads of this process, and other processes."""
        backup_drafts.remove_left_overs(tmp_path, -10)
        child = os.fork()
        if not child:
            backup_drafts._made_here.clear()
            backup_drafts.remove_left_overs(tmp_path, -10)
            os._exit(0)
        seen.append(os.waitpid(child, 0)[1])

    def copied(*args: object) -> None:
        collect()
        copy_pages(*args)  # type: ignore[arg-type]
        collect()

    publish = room.publish
    monkeypatch.setattr(room, "copy_pages", copied)
    monkeypatch.setattr(room, "publish", lambda *paths: (collect(), publish(*paths)))
    store.backup(tmp_path / "back.db")
    assert seen == [0, 0, 0] and names_in(tmp_path) == ["a", "back.db", "back.db-blobs"]
    with opened(f"sqlite:///{tmp_path / 'back.db'}") as backup:
        assert backup.verify().problems == ()


@pytest.mark.parametrize("where", ["without locks", "on another machine"])
def test_where_a_lock_proves_nothing_time_does(
    store: SampleStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    assert killed_backup(store.url, tmp_path / "back.db", between_its_renames)
    if where == "without locks":

        def no_locks(*_: object) -> None:
            raise OSError(37, "No locks available")

        monkeypatch.setattr("fcntl.flock", no_locks)
    else:
        monkeypatch.setattr("socket.gethostname", lambda: "another")
        monkeypatch.setattr(backup_drafts, "filesystem_type", lambda _: "nfs4")
    before = names_in(tmp_path)
    store.backup(tmp_path / "other.db")
    assert set(before) < set(names_in(tmp_path))
    old = time.time() - 2 * backup_drafts.QUIET_SECONDS
    for parent, names, files in os.walk(tmp_path):
        for name in (*names, *files):
            os.utime(Path(parent) / name, (old, old))
    store.backup(tmp_path / "back.db")
    assert names_in(tmp_path) == ["a", "back.db", "back.db-blobs", "other.db", "other.db-blobs"]


def test_what_an_earlier_version_left_is_removed_when_it_is_old(store: SampleStore, tmp_path: Path) -> None:
    assert killed_backup(store.url, tmp_path / "back.db", while_pages_are_copied)
    [directory] = tmp_path.glob(".slime_store-*-blobs")
    (directory / MARK).unlink()
    store.backup(tmp_path / "young.db")
    assert directory.exists()
    old = time.time() - 2 * backup_drafts.QUIET_SECONDS
    for path in [*directory.rglob("*"), *tmp_path.glob(".slime_store-*")]:
        os.utime(path, (old, old))
    store.backup(tmp_path / "old.db")
    assert not list(tmp_path.glob(".slime_store-*"))


def test_a_killed_backup_of_any_store_is_removed(store_url: str, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    with opened(store_url) as store:
        record(store, 0)
    assert killed_backup(store_url, tmp_path / "b" / "back.db", between_its_renames)
    with opened(store_url, read_only=True) as store:
        store.backup(tmp_path / "b" / "back.db")
    assert names_in(tmp_path / "b") == ["back.db", "back.db-blobs"]
