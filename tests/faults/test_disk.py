"""Disks that are full, limited, read-only, forbidden or gone, for real: typed, undone, and usable again (case H9)."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slime_store import SampleStore
from slime_store.errors import BackgroundRecordError, BlobMissingError, DatabaseError, StoreError, StoreFullError
from slime_store.testing import assert_same
from tests.faults.given import FORK, PATIENCE_SECONDS, RUN, Left, output_of, side_files

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")

NOBODY = 65534
HARD = resource.getrlimit(resource.RLIMIT_FSIZE)[1]


def _in_a_child(work: Callable[..., None], *args: Any) -> int:
    def run() -> None:
        try:
            work(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    child = FORK.Process(target=run)
    child.start()
    child.join(PATIENCE_SECONDS)
    assert not child.is_alive()
    assert child.exitcode is not None
    return child.exitcode


def _limit(n_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, HARD))


# -- a limit on the size of files: reached in the middle of a side file, of the log, of the database


def _record_under_limits(url: str, limits: list[int]) -> None:
    with SampleStore.open(url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        n_failed = 0
        for limit in limits:
            _limit(limit)
            try:
                run.record_train(1, output_of(1), on_conflict="replace")
            except StoreFullError:
                n_failed += 1
                _limit(HARD)
                assert_same(run.load_train(0), output_of(0))
                assert len(side_files(url)) == len(run.rollouts())
            _limit(HARD)
            run.record_train(2, output_of(2), on_conflict="replace")
        assert n_failed > len(limits) // 2, n_failed
        _limit(1000)
        future = run.record_train(3, output_of(3), background=True)
        assert isinstance(future.exception(60), StoreFullError)
        _limit(HARD)
        for report in (store.flush, lambda: None):
            try:
                report()
            except BackgroundRecordError:
                continue
        run.record_train(3, output_of(3))


def test_h9_a_limit_that_is_reached_at_any_byte_is_typed_undone_and_forgotten(sqlite_url: str) -> None:
    limits = [0, 1, 4096, 16384, 100_000, 500_000, 700_000, *range(800_000, 1_300_000, 100_000)]
    assert _in_a_child(_record_under_limits, sqlite_url, limits) == 0
    left = Left(sqlite_url)
    present = left.check({0: 0, 2: 2, 3: 3}, (1, 1))
    assert left.n_orphans == 0
    assert len(present) in (3, 4)


def _record_until_killed_by_a_limit(url: str, limit: int) -> None:
    with SampleStore.open(url) as store:
        run = store.run(RUN)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # the kernel kills at the byte; Python would ignore it
        _limit(limit)
        run.record_train(1, output_of(1))


@pytest.mark.parametrize("n", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_h8_a_writer_killed_by_the_kernel_at_a_byte_of_a_file_leaves_all_or_nothing(sqlite_url: str, n: int) -> None:
    left = Left(sqlite_url)
    left.record(0, 0)
    n_killed = 0
    for limit in range(0, 1_300_000, 1_300_000 // n):
        n_killed += _in_a_child(_record_until_killed_by_a_limit, sqlite_url, limit) == -signal.SIGXFSZ
        left.check({0: 0}, (1, 1))
        left.keep_only({0})
    print(f"killed at {n_killed} bytes; {left.n_orphans} orphan files collected; nothing lost")
    assert n_killed > n // 2


# -- a small file system


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True) if shutil.which("mount") else None
    if done is None or done.returncode:
        pytest.skip(f"NOT TESTED: no file system can be mounted here: {done.stderr.strip() if done else 'no mount'}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_h9_a_file_system_that_is_really_full_takes_rollouts_again_when_there_is_room(small_disk: Path) -> None:
    url = f"sqlite:///{small_disk / 'runs.db'}"
    recorded: dict[int, int] = {}
    with SampleStore.open(url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        recorded[0] = 0
        ballast = small_disk / "ballast"
        for spare in (0, 200_000, 900_000, 1_000_000, 1_100_000, 1_200_000):
            room = shutil.disk_usage(small_disk).free - spare
            with ballast.open("wb", buffering=0) as file:
                while room > 0 and (written := file.write(bytes(min(room, 1 << 20)))):
                    room -= written
            rollout_id = max(recorded) + 1
            try:
                run.record_train(rollout_id, output_of(rollout_id))
                recorded[rollout_id] = rollout_id
            except StoreFullError:
                assert [info.rollout_id for info in run.rollouts()] == sorted(recorded)
                future = run.record_train(rollout_id, output_of(rollout_id), background=True)
                assert isinstance(future.exception(60), StoreFullError)
                with pytest.raises(BackgroundRecordError):
                    run.record_train(rollout_id, output_of(rollout_id))
            assert_same(run.load_train(0), output_of(0))
            ballast.unlink()
            run.record_train(rollout_id, output_of(rollout_id), on_conflict="replace")
            recorded[rollout_id] = rollout_id
    left = Left(url)
    left.check(recorded)
    assert left.n_orphans == 0


# -- what an unprivileged user may not do


@pytest.fixture
def shared_place() -> Iterator[Path]:
    """A directory that another user can reach."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: only root can become another user")
    place = Path(tempfile.mkdtemp(prefix="slime-store-"))
    place.chmod(0o777)
    yield place
    shutil.rmtree(place)


def _become_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def _made_by_nobody(url: str) -> None:
    _become_nobody()
    with SampleStore.open(url) as store:
        store.run(RUN).record_train(0, output_of(0))


def _read_only_directory(url: str, place: Path) -> None:
    _become_nobody()
    with SampleStore.open(url, read_only=True) as store:
        assert_same(store.run(RUN, create=False).load_train(0), output_of(0))
    for target in (url, f"sqlite:///{place / 'new.db'}"):
        try:
            with SampleStore.open(target) as store:
                store.run(RUN).record_train(1, output_of(1))
        except DatabaseError as error:
            assert "new.db" in str(error) or "runs.db" in str(error)
        else:
            raise AssertionError("it was recorded")


def test_h10_a_directory_that_may_only_be_read_is_read_and_writing_is_a_typed_error(shared_place: Path) -> None:
    url = f"sqlite:///{shared_place / 'runs.db'}"
    assert _in_a_child(_made_by_nobody, url) == 0
    before = sorted(path.name for path in shared_place.iterdir())
    shared_place.chmod(0o555)
    assert _in_a_child(_read_only_directory, url, shared_place) == 0
    assert sorted(path.name for path in shared_place.iterdir()) == before
    Left(url).check({0: 0})


def _forbidden(url: str) -> None:
    _become_nobody()
    for options in ({}, {"read_only": True}):
        try:
            SampleStore.open(url, **options)
        except StoreError as error:
            assert "runs.db" in str(error)
        else:
            raise AssertionError("it was opened")


def test_h9_a_file_that_may_not_be_read_is_a_typed_error(shared_place: Path) -> None:
    url = f"sqlite:///{shared_place / 'runs.db'}"
    Left(url).record(0, 0)
    (shared_place / "runs.db").chmod(0o600)
    assert _in_a_child(_forbidden, url) == 0
    Left(url).check({0: 0})


def _forbidden_side_files(url: str, gate: Any, opened: Any) -> None:
    _become_nobody()
    with SampleStore.open(url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        opened.set()
        assert gate.wait(PATIENCE_SECONDS)
        gate.clear()
        for _ in range(2):
            try:
                run.record_train(1, output_of(1))
            except DatabaseError as error:
                assert "Permission denied" in str(error)
            else:
                raise AssertionError("it was recorded")
        run.record_train(2, output_of(2, with_files=False))  # what needs no side file goes on
        opened.set()
        assert gate.wait(PATIENCE_SECONDS)
        run.record_train(1, output_of(1))  # without a restart


def test_h9_side_files_that_may_not_be_written_fail_their_rollouts_only_until_they_may(shared_place: Path) -> None:
    url, files = f"sqlite:///{shared_place / 'runs.db'}", shared_place / "runs.db-blobs"
    gate, opened = FORK.Event(), FORK.Event()
    child = FORK.Process(target=_forbidden_side_files, args=(url, gate, opened))
    child.start()
    for mode in (0o000, 0o755):
        assert opened.wait(PATIENCE_SECONDS)
        opened.clear()
        files.chmod(mode)
        gate.set()
    child.join(PATIENCE_SECONDS)
    assert child.exitcode == 0
    with SampleStore.open(url) as store:
        run = store.run(RUN)
        assert_same([run.load_train(i) for i in (0, 1)], [output_of(i) for i in (0, 1)])
        assert store.verify().ok


# -- a directory that vanishes


def test_h9_side_files_that_vanish_are_reported_and_recording_goes_on(sqlite_url: str) -> None:
    files = Path(f"{sqlite_url.removeprefix('sqlite:///')}-blobs")
    with SampleStore.open(sqlite_url) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        run.record_train(1, output_of(1, with_files=False))
        for rollout_id in (2, 3):
            shutil.rmtree(files)
            run.record_train(rollout_id, output_of(rollout_id), background=rollout_id == 3)
            store.flush()
        with pytest.raises(BlobMissingError):
            run.load_train(0)
        assert_same([run.load_train(i).samples for i in (1, 3)], [_plain(1), output_of(3).samples])
        report = store.verify()
        lost = {each.rollout_id for each in report.problems if each.code == "array_damaged"}
        assert not report.ok and lost == {0, 2}


def _plain(seed: int) -> Any:
    return output_of(seed, with_files=False).samples


def test_h9_a_file_in_the_place_of_the_directory_is_a_typed_error_until_it_is_gone(sqlite_url: str) -> None:
    files = Path(f"{sqlite_url.removeprefix('sqlite:///')}-blobs")
    files.write_text("in the way")
    with SampleStore.open(sqlite_url) as store:
        run = store.run(RUN)
        with pytest.raises(DatabaseError):
            run.record_train(0, output_of(0))
        assert files.read_text() == "in the way"
        files.unlink()
        run.record_train(0, output_of(0))
    Left(sqlite_url).check({0: 0})
