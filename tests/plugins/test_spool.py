"""The spool: where it lies, that its one file is whole, and that another one takes its place."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slime_store import RolloutFnTrainOutput, Run, SampleStore
from slime_store.errors import DatabaseError, RolloutExistsError, StoreFullError, UnsupportedValueError
from slime_store.interchange import import_path
from slime_store.plugins import spool as spools
from slime_store.plugins.settings import PluginSettings
from slime_store.plugins.spool import Spool, own_directory
from slime_store.store.prepared import PreparedRollout, prepare_train
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import opened
from tests.faults.given import FORK, PATIENCE_SECONDS


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"slime_store_spool-{os.getuid()}"


def test_it_is_made_for_this_user_alone_and_used_again(expected: Path) -> None:
    assert own_directory() == expected == own_directory()
    assert stat.S_IMODE(expected.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "put",
    [
        lambda path: path.symlink_to(path.parent),
        lambda path: path.write_text("a file"),
        lambda path: (path.mkdir(), path.chmod(0o777)),
        lambda path: (path.mkdir(mode=0o700), os.chown(path, 65534, 65534)),
    ],
    ids=["link", "file", "open to all", "of another user"],
)
def test_what_somebody_has_put_there_is_left_alone(expected: Path, put: Callable[[Path], object]) -> None:
    try:
        put(expected)
    except PermissionError:
        pytest.skip("only root can give a directory away")
    directory = own_directory()
    assert directory != expected
    assert directory.parent == expected.parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def spool(tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spool]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = _spool(tmp_path, directory)
    yield made
    made.close()


def _spool(tmp_path: Path, directory: Path | None) -> Spool:
    settings = PluginSettings(
        url=str(tmp_path / "store.db"), run="run", spool_dir=str(directory) if directory else None
    )
    return Spool(settings)


def output(rollout_id: int) -> RolloutFnTrainOutput:
    """Return samples with an array that is large enough for a side file."""
    pixels = np.frombuffer(np.random.default_rng(rollout_id).bytes(1_000_000), np.uint8)
    return RolloutFnTrainOutput([[make_sample(i, multimodal_train_inputs={"pixels": pixels.copy()}) for i in range(2)]])


def rollout(rollout_id: int) -> PreparedRollout:
    return prepare_train(rollout_id, output(rollout_id))


def held(path: Path) -> list[int]:
    with SampleStore.open(path, read_only=True) as store:
        return [info.rollout_id for info in store.run("run", create=False).rollouts()]


def assert_taken_in(url: str, path: Path, rollout_ids: list[int]) -> None:
    with opened(url) as store:
        run = store.run("run")
        assert [each.rollout_id for each in import_path(run, path).recorded] == rollout_ids
        for rollout_id in rollout_ids:
            assert_same(run.load_train(rollout_id), output(rollout_id))


def test_a_copy_of_the_one_file_brings_everything(
    store_url: str, spool: Spool, directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for rollout_id in range(3):
        spool.keep(rollout(rollout_id))
        [path] = directory.glob("run.*.db")
        assert f"kept train rollout {rollout_id} in {path}; take it in" in caplog.text
        shutil.copy(path, tmp_path / "copied.db")
        assert held(tmp_path / "copied.db") == list(range(rollout_id + 1))
    assert [each.name for each in directory.iterdir() if each.stat().st_size and each.suffix != ".db-shm"] == [
        path.name
    ]
    assert_taken_in(store_url, tmp_path / "copied.db", [0, 1, 2])


def _keep_and_be_killed(tmp_path: Path, directory: Path) -> None:
    spool = _spool(tmp_path, directory)
    for rollout_id in range(2):
        spool.keep(rollout(rollout_id))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_copy_of_the_one_file_brings_everything_after_a_kill(
    tmp_path: Path, directory: Path, sqlite_url: str
) -> None:
    process = FORK.Process(target=_keep_and_be_killed, args=(tmp_path, directory))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == -signal.SIGKILL
    [path] = directory.glob("run.*.db")
    shutil.copy(path, tmp_path / "copied.db")
    assert_taken_in(sqlite_url, tmp_path / "copied.db", [0, 1])


def test_where_a_reader_keeps_the_log_from_the_file_both_are_named(
    spool: Spool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spools, "PATIENCE_SECONDS", 0.1)
    spool.keep(rollout(0))
    assert spool.path is not None
    with SampleStore.open(spool.path, read_only=True) as reader, reader._handle.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM runs")
        spool.keep(rollout(1))
    assert f"kept train rollout 1 in {spool.path} and {spool.path.name}-wal beside it" in caplog.text
    spool.keep(rollout(2))
    assert f"kept train rollout 2 in {spool.path}; take it in" in caplog.text


def _removed(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def _moved(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        each.rename(each.with_name(f"done-{each.name}"))


def _linked(path: Path) -> None:
    path.rename(path.with_name("moved.db"))
    path.symlink_to("moved.db")


def _replaced_directory(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("a file")


@pytest.mark.parametrize(
    "happens",
    [
        Path.unlink,
        _removed,
        _moved,
        _linked,
        _replaced_directory,
        lambda path: os.truncate(path, 1000),
        lambda path: path.write_text("no store at all" * 100),
        lambda path: Path(f"{path}-wal").unlink(),
        lambda path: shutil.rmtree(path.parent),
        lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
    ],
    ids=[
        "gone",
        "gone with all",
        "moved",
        "a link",
        "no directory",
        "cut",
        "another",
        "log gone",
        "gone above",
        "moved above",
    ],
)
def test_another_file_is_begun_when_the_one_has_gone_or_cannot_be_used(
    spool: Spool, happens: Callable[[Path], Any], caplog: pytest.LogCaptureFixture, sqlite_url: str
) -> None:
    spool.keep(rollout(0))
    assert spool.path is not None
    first = spool.path
    happens(first)
    for rollout_id in (1, 2):
        spool.keep(rollout(rollout_id))
    assert spool.path != first
    assert re.search(rf"{first.name} .*cannot be used", caplog.text)
    assert f"kept train rollout 2 in {spool.path}; take it in" in caplog.text
    assert spool.n_kept == 3
    assert_taken_in(sqlite_url, spool.path, [1, 2])


def test_files_of_one_process_come_into_one_session(store_url: str, spool: Spool) -> None:
    spool.start = {"checkpoint_rollout_id": 2, "lineage": {"lr": 1}}
    with opened(store_url) as store:
        run = store.run("run")
        run.recovery.begin_session(**spool.start)
        for rollout_id in range(2):
            spool.keep(rollout(rollout_id))
            assert spool.path is not None
            path = spool.path.rename(spool.path.with_name(f"{rollout_id}.db"))
            with SampleStore.open(path, read_only=True) as file:
                assert [info.checkpoint_rollout_id for info in file.run("run", create=False).sessions()] == [2]
            assert len(import_path(run, path).recorded) == 1
        assert {info.session for info in run.rollouts()} == {1}


@pytest.mark.parametrize("what", ["a file", "forbidden", "full"])
def test_another_directory_is_used_when_the_one_cannot_be(
    what: str, spool: Spool, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what == "a file":
        directory.write_text("a file")
    elif what == "forbidden":
        spool = _spool(tmp_path, Path("/proc/nowhere"))
    else:
        _make_full(directory, monkeypatch)
    for rollout_id in range(2):
        spool.keep(rollout(rollout_id))
    assert spool.path is not None
    assert spool.path.parent == own_directory()
    assert held(spool.path) == [0, 1]
    assert len([*directory.glob("*.db")]) <= 1  # a full disk is not filled with empty files
    spool.close()


def _make_full(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = PreparedRollout.store

    def store(self: PreparedRollout, run: Run) -> Any:
        if run._handle.config.path.parent == directory:
            raise StoreFullError(str(directory), "no space left")
        return real(self, run)

    monkeypatch.setattr(PreparedRollout, "store", store)


@pytest.mark.parametrize(
    "error",
    [
        UnsupportedValueError("group 0", "too large"),
        RolloutExistsError("run", "train", 0),
        TypeError("a fault of ours"),
        RecursionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_no_file_can_hold_is_tried_once_and_costs_no_file(
    error: Exception, spool: Spool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def refused(*_: Any) -> Any:
        tried.append(1)
        raise error

    spool.keep(rollout(0))
    with monkeypatch.context() as patch:
        patch.setattr(PreparedRollout, "store", refused)
        for _ in range(3):
            with pytest.raises(type(error)):
                spool.keep(rollout(1))
    assert tried == [1, 1, 1]
    spool.keep(rollout(2))
    [path] = directory.glob("*.db")
    assert held(path) == [0, 2]
    assert not [*own_directory().iterdir()]


@pytest.mark.parametrize("error", [DatabaseError("a file", "disk I/O error"), OSError("gone"), RuntimeError("a fault")])
def test_what_is_stored_is_not_stored_again_when_its_log_stays(
    error: Exception, spool: Spool, directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(spools, "gather", fail)
        spool.keep(rollout(0))
    [path] = directory.glob("*.db")
    assert f"kept train rollout 0 in {path} and {path.name}-wal beside it" in caplog.text
    spool.keep(rollout(1))
    assert [*directory.glob("*.db")] == [path]
    assert held(path) == [0, 1]
    assert spool.n_kept == 2


def test_a_log_that_somebody_left_is_not_taken_for_that_of_a_new_file(
    spool: Spool, tmp_path: Path, directory: Path
) -> None:
    spool.keep(rollout(0))
    spool.close()
    [path] = directory.glob("*.db")
    path.rename(tmp_path / "moved.db")
    Path(f"{path}-wal").write_bytes(b"of the file that was moved")
    other = _spool(tmp_path, directory)
    other.keep(rollout(1))
    assert other.path is not None and other.path != path
    assert held(other.path) == [1]
    other.close()


def test_a_file_of_an_earlier_process_with_the_same_number_is_gone_on_with(
    spool: Spool, tmp_path: Path, directory: Path
) -> None:
    with SampleStore.open(tmp_path / "made.db") as store:  # by a version that had side files
        store.run("run").record_train(0, output(0))
    spool.keep(rollout(1))
    spool.close()
    assert spool.path is not None
    shutil.copy(tmp_path / "made.db", spool.path)
    shutil.copytree(tmp_path / "made.db-blobs", f"{spool.path}-blobs")
    other = _spool(tmp_path, directory)
    for rollout_id in (0, 2):
        other.keep(rollout(rollout_id))
    other.close()
    assert other.path == spool.path
    shutil.copy(spool.path, tmp_path / "copied.db")
    with SampleStore.open(tmp_path / "copied.db", read_only=True) as store:
        run = store.run("run", create=False)
        for rollout_id in (0, 2):
            assert_same(run.load_train(rollout_id), output(rollout_id))
