"""Case H9: the disk fills up during a record, and later there is space again."""

from __future__ import annotations

import errno
import io
import logging
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from slime_store import Run, SampleStore
from slime_store.blobs import directory, syncing
from slime_store.errors import BackgroundRecordError, DatabaseError, StoreFullError
from slime_store.testing import assert_same, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from slime_store.types import RolloutFnTrainOutput


def output_of(rollout_id: int, *, with_file: bool = False) -> RolloutFnTrainOutput:
    """A rollout that needs some hundred kilobytes of the database, and with ``with_file`` two side files first."""
    output = make_train_output(8, 4, seed=rollout_id)
    rng = np.random.default_rng(rollout_id)
    for group in output.samples:
        group[0].metadata["noise"] = rng.bytes(50_000)
    if with_file:
        output.samples[0][0].rollout_routed_experts = rng.integers(0, 256, (5000, 50, 4), dtype=np.uint8)
        output.samples[0][1].multimodal_train_inputs = {"pixels": rng.bytes(900_000)}
    return output


class Disk:
    """How large SQLite files may become."""

    def __init__(self) -> None:
        self.is_full = False
        self._answers = threading.Event()
        self._answers.set()

    @contextmanager
    def not_answering(self) -> Iterator[None]:
        """Have everyone who wants a connection wait until the body has ended."""
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()

    def set_limit(self, connection: Any, *_rest: Any) -> None:
        self._answers.wait(60)
        if isinstance(connection, sqlite3.Connection):
            pages = 1 if self.is_full else 1 << 30  # a limit below the file's size means its size
            connection.execute(f"PRAGMA max_page_count = {pages}")


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk()
    event.listen(Pool, "checkout", made.set_limit)
    yield made
    event.remove(Pool, "checkout", made.set_limit)


def side_files(url: str) -> list[Path]:
    """Every file in the side directory, unfinished ones included."""
    return [path for path in Path(f"{url.removeprefix('sqlite:///')}-blobs").glob("*/*") if path.is_file()]


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, sqlite_url: str) -> str:
    return sqlite_url if request.param == "file" else ":memory:"


@pytest.mark.parametrize("with_file", [False, True], ids=["in the database", "with side files"])
def test_h9_a_record_on_a_full_disk_fails_typed_keeps_nothing_and_the_next_one_works(
    place: str, disk: Disk, with_file: bool
) -> None:
    with opened(place) as store:
        run = store.run("contract")
        run.record_train(0, output_of(0, with_file=with_file))
        files, before = side_files(place), store.stats()
        disk.is_full = True
        for _ in range(2):
            with pytest.raises(StoreFullError, match="full") as caught:
                run.record_train(1, output_of(1, with_file=with_file))
        assert caught.value.__cause__ is not None
        assert [info.rollout_id for info in run.rollouts(attempts=True)] == [0]
        assert store.stats() == before
        assert side_files(place) == files
        assert_same(run.load_train(0), output_of(0, with_file=with_file))  # reading goes on meanwhile
        disk.is_full = False
        assert run.record_train(1, output_of(1, with_file=with_file)).attempt == 1
        assert_same(run.load_train(1), output_of(1, with_file=with_file))
    if place != ":memory:":
        assert_same(loaded_train(place, 1), output_of(1, with_file=with_file))


def test_h9_a_replacement_that_does_not_fit_leaves_what_it_was_to_replace(sqlite_url: str, disk: Disk) -> None:
    with run_of(sqlite_url) as run:
        run.record_train(0, output_of(0, with_file=True))
        disk.is_full = True
        with pytest.raises(StoreFullError):
            run.record_train(0, output_of(1, with_file=True), on_conflict="replace")
        assert_same(run.load_train(0), output_of(0, with_file=True))
        disk.is_full = False
        run.record_train(0, output_of(1, with_file=True), on_conflict="replace")
        assert_same(run.load_train(0), output_of(1, with_file=True))
        assert len(run.rollouts(attempts=True)) == 1
    assert len(side_files(sqlite_url)) == 2


def test_h9_the_first_record_of_a_process_may_meet_a_full_disk(sqlite_url: str, disk: Disk) -> None:
    with run_of(sqlite_url) as run:
        disk.is_full = True
        with pytest.raises(StoreFullError):
            run.record_train(0, output_of(0))
        disk.is_full = False
        assert run.record_train(0, output_of(0)).session == 1
        assert_same(run.load_train(0), output_of(0))


def _call_again(store: SampleStore, run: Run) -> None:
    run.record_train(9, [[make_sample(0)]])


REPORTERS: dict[str, Callable[[SampleStore, Run], None]] = {
    "the next record": _call_again,
    "the next record in the background": lambda store, run: run.record_train(9, [[make_sample(0)]], background=True),  # type: ignore[dict-item,return-value]
    "flush of the run": lambda store, run: run.flush(),
    "flush of the store": lambda store, run: store.flush(),
    "close": lambda store, run: store.close(),
}


@pytest.mark.parametrize("reporter", REPORTERS)
def test_h9_a_background_record_reports_a_full_disk_once_and_recording_goes_on(
    sqlite_url: str, disk: Disk, reporter: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = SampleStore.open(sqlite_url)
    run = store.run("contract")
    run.record_train(0, output_of(0))
    disk.is_full = True
    future = run.record_train(1, output_of(1, with_file=True), background=True)
    assert isinstance(future.exception(timeout=60), StoreFullError)
    with pytest.raises(BackgroundRecordError, match=r"train rollout 1 of run 'contract'.*full") as caught:
        REPORTERS[reporter](store, run)
    assert isinstance(caught.value.__cause__, StoreFullError)
    assert [r.levelno for r in caplog.records if "rollout 1" in r.getMessage()] == [logging.ERROR]
    disk.is_full = False
    if reporter == "close":
        store = SampleStore.open(sqlite_url)
        run = store.run("contract")
    assert [info.rollout_id for info in run.rollouts(attempts=True)] == [0]  # nothing of 1, and 9 was not begun
    assert side_files(sqlite_url) == []
    store.flush()  # it was said once
    futures = [run.record_train(i, output_of(i, with_file=True), background=True) for i in (1, 2)]
    store.close()
    assert [future.result(timeout=60).attempt for future in futures] == [1, 1]
    for rollout_id in (1, 2):
        assert_same(loaded_train(sqlite_url, rollout_id), output_of(rollout_id, with_file=True))


def test_h9_every_failure_in_the_background_is_reported(sqlite_url: str, disk: Disk) -> None:
    with opened(sqlite_url) as store:
        run = store.run("contract")
        run.record_train(0, output_of(0))
        disk.is_full = True
        with disk.not_answering():  # or the second call reports the first failure
            futures = [run.record_train(i, output_of(i), background=True) for i in (1, 2)]
        assert all(isinstance(future.exception(timeout=60), StoreFullError) for future in futures)
        for rollout_id in (1, 2):
            with pytest.raises(BackgroundRecordError, match=f"rollout {rollout_id} of"):
                store.flush()
        store.flush()


def test_h9_closing_reports_all_failures_in_the_background_together(sqlite_url: str, disk: Disk) -> None:
    store = SampleStore.open(sqlite_url)
    run = store.run("contract")
    run.record_train(0, output_of(0))
    disk.is_full = True
    with disk.not_answering():
        for rollout_id in (1, 2):
            run.record_train(rollout_id, output_of(rollout_id), background=True)
    with pytest.raises(BackgroundRecordError, match=r"rollout 1 of .*rollout 2 of") as caught:
        store.close()
    assert isinstance(caught.value.__cause__, StoreFullError)
    store.close()  # it was said


# -- the directory of side files is on a full disk


def _raises(code: int) -> Callable[..., Any]:
    def fail(*_args: Any, **_options: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


class _FullFile:
    """A file that takes some bytes and then no more."""

    def __init__(self, path: Path, mode: str, code: int) -> None:
        self._file, self._code = io.FileIO(path, mode.replace("b", "")), code

    def __enter__(self) -> _FullFile:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        self._file.write(data[:1000])
        raise OSError(self._code, os.strerror(self._code))


def _break(monkeypatch: pytest.MonkeyPatch, where: str, code: int) -> None:
    """Have one system call of the side directory fail; the database's own calls go on."""
    if where == "write":
        monkeypatch.setattr(syncing, "open", lambda *args: _FullFile(*args, code), raising=False)
    elif where == "open":
        monkeypatch.setattr(syncing, "open", _raises(code), raising=False)
    elif where == "directory":
        fsync = os.fsync

        def sync_files_only(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(code, os.strerror(code))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", sync_files_only)
    elif where == "mkdir":
        monkeypatch.setattr(Path, "mkdir", _raises(code))
    else:
        monkeypatch.setattr(syncing, "os", SimpleNamespace(**vars(os) | {where: _raises(code)}))


def _make_directory(store: SampleStore) -> None:
    """Make what the first side file would make beside itself, so that the file is what fails."""
    files = store._handle.directory
    assert files is not None
    files.root.mkdir()
    files.mark()


CALLS = ["open", "write", "fsync", "rename", "directory", "mkdir"]
CODES = {
    errno.ENOSPC: StoreFullError,
    errno.EDQUOT: StoreFullError,
    errno.EIO: DatabaseError,
    errno.EROFS: DatabaseError,
}
FAILURES = [(call, errno.ENOSPC) for call in CALLS] + [("fsync", code) for code in CODES if code != errno.ENOSPC]


@pytest.mark.parametrize("background", [False, True], ids=["", "background"])
@pytest.mark.parametrize(("call", "code"), FAILURES, ids=lambda each: errno.errorcode.get(each, each))
def test_h9_a_side_file_that_cannot_be_written_fails_the_record_typed_and_leaves_nothing(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, call: str, code: int, background: bool
) -> None:
    with opened(sqlite_url) as store:
        run = store.run("contract")
        run.record_train(0, output_of(0))
        _make_directory(store)
        with monkeypatch.context() as patched:
            _break(patched, call, code)
            if background:
                error = run.record_train(1, output_of(1, with_file=True), background=True).exception(timeout=60)
            else:
                with pytest.raises(DatabaseError) as caught:
                    run.record_train(1, output_of(1, with_file=True))
                error = caught.value
        assert type(error) is CODES[code]
        assert os.strerror(code) in str(error) and "store.db" in str(error)
        if background:
            with pytest.raises(BackgroundRecordError):
                store.flush()
        assert side_files(sqlite_url) == []
        assert [info.rollout_id for info in run.rollouts(attempts=True)] == [0]
        run.record_train(1, output_of(1, with_file=True))
    assert_same(loaded_train(sqlite_url, 1), output_of(1, with_file=True))


def test_h9_the_second_of_two_side_files_does_not_fit_and_the_first_is_taken_back(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    original = directory.BlobDirectory.write

    def write_one(self: directory.BlobDirectory, data: bytes) -> str:
        if written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(original(self, data))
        return written[0]

    with run_of(sqlite_url) as run:
        monkeypatch.setattr(directory.BlobDirectory, "write", write_one)
        with pytest.raises(StoreFullError):
            run.record_train(0, output_of(0, with_file=True))
        assert len(written) == 1
        assert side_files(sqlite_url) == []


def test_h9_a_disk_that_is_full_even_for_a_new_store_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slime_store.schema import migrator

    with monkeypatch.context() as patched:
        patched.setattr(migrator, "os", SimpleNamespace(**vars(os) | {"open": _raises(errno.ENOSPC)}))
        with pytest.raises(StoreFullError):
            SampleStore.open(tmp_path / "store.db")
    assert list(tmp_path.iterdir()) == []
    with run_of(str(tmp_path / "store.db")) as run:
        run.record_train(0, output_of(0))
