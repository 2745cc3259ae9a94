"""The files of an open store are linked, removed or replaced by somebody: nothing that a record returned is lost."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slime_store import Sample, SampleStore
from slime_store.database.filesystem import FileMountWarning
from slime_store.database.names import SecondNameWarning
from slime_store.errors import DatabaseError
from tests.faults.given import FORK, PATIENCE_SECONDS

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def _record_and_die(path: Path, gone: str, log: Path) -> None:
    run = SampleStore.open(path).run("run")
    run.record_train(0, [[Sample()]])
    os.unlink(f"{path}{gone}")
    for rollout_id in range(1, 4):
        try:
            run.record_train(rollout_id, [[Sample()]])
        except DatabaseError:
            continue
        with log.open("a") as file:
            file.write(f"{rollout_id}\n")
    os.kill(os.getpid(), signal.SIGKILL)


def _record(path: Path, rollout_id: int) -> None:
    with SampleStore.open(path) as store:
        store.run("run").record_train(rollout_id, [[Sample()]])


@pytest.mark.parametrize("gone", ["-wal", "-shm"])
def test_a_record_is_refused_once_the_log_is_removed(path: Path, tmp_path: Path, gone: str) -> None:
    SampleStore.open(path).close()
    log = tmp_path / "returned"
    process = FORK.Process(target=_record_and_die, args=(path, gone, log))
    process.start()
    process.join(PATIENCE_SECONDS)
    returned = [int(line) for line in log.read_text().splitlines()] if log.exists() else []
    with SampleStore.open(path) as store:
        present = {info.rollout_id for info in store.run("run").rollouts()} if store.runs() else set()
    assert set(returned) <= present
    assert not returned


@pytest.mark.parametrize("gone", ["-wal", "-shm"])
def test_a_log_that_goes_before_the_first_record_is_noticed_too(path: Path, gone: str) -> None:
    _record(path, 0)
    store = SampleStore.open(path)
    run = store.run("run")  # only reads
    assert run.rollouts()
    for suffix in {"-wal", gone}:
        os.unlink(f"{path}{suffix}")
    for rollout_id in (1, 2):
        with pytest.raises(DatabaseError, match="was removed or replaced"):
            run.record_train(rollout_id, [[Sample()]])
    store.close()
    _record(path, 3)
    with SampleStore.open(path) as store:
        assert [info.rollout_id for info in store.run("run").rollouts()] == [0, 3]


@pytest.mark.parametrize("gone", ["-wal", "-shm"])
def test_the_error_says_what_to_do_and_doing_it_saves_everything(path: Path, gone: str) -> None:
    store = SampleStore.open(path)
    run = store.run("run")
    run.record_train(0, [[Sample(response="kept")]])
    os.unlink(f"{path}{gone}")
    with pytest.raises(DatabaseError, match=rf"store\.db{gone} was removed or replaced.*Close the store"):
        run.record_train(1, [[Sample()]])
    store.close()
    with SampleStore.open(path) as store:
        run = store.run("run")
        assert run.load_train(0).samples[0][0].response == "kept"
        run.record_train(1, [[Sample()]])
        assert [info.rollout_id for info in run.rollouts()] == [0, 1]
        assert store.verify().ok


def test_the_log_of_a_store_that_is_opened_by_a_link_lies_beside_the_real_file(path: Path, tmp_path: Path) -> None:
    _record(path, 0)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(path)
    store = SampleStore.open(link)
    run = store.run("run")
    run.record_train(1, [[Sample()]])
    os.unlink(f"{path}-wal")
    with pytest.raises(DatabaseError, match="was removed or replaced"):
        run.record_train(2, [[Sample()]])
    store.close()
    with SampleStore.open(link) as store:
        assert [info.rollout_id for info in store.run("run").rollouts()] == [0, 1]


def test_a_log_that_comes_and_goes_rightly_is_no_fault(path: Path) -> None:
    for rollout_id in range(3):
        _record(path, rollout_id)
    with SampleStore.open(path) as store:
        run = store.run("run")
        run.record_train(3, [[Sample()]])
        store.vacuum()
        child = FORK.Process(target=_record, args=(path, 4))  # a fork closes all connections, the last one the log
        child.start()
        child.join(PATIENCE_SECONDS)
        other = SPAWN.Process(target=_record, args=(path, 5))
        other.start()
        other.join(PATIENCE_SECONDS)
        run.record_train(6, [[Sample()]])
        assert [info.rollout_id for info in run.rollouts()] == list(range(7))


def test_a_file_with_two_names_is_refused_for_writing(path: Path, tmp_path: Path) -> None:
    store = SampleStore.open(path)
    run = store.run("run")
    run.record_train(0, [[Sample()]])
    os.link(path, tmp_path / "link.db")
    with pytest.raises(DatabaseError, match="second name"):
        run.record_train(1, [[Sample()]])
    with pytest.raises(DatabaseError, match="second name"):
        SampleStore.open(tmp_path / "link.db").run("run")
    os.unlink(tmp_path / "link.db")
    run.record_train(1, [[Sample()]])
    assert [info.rollout_id for info in run.rollouts()] == [0, 1]


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_reader_by_a_second_name_is_refused_while_there_is_a_log_by_the_first(
    path: Path, tmp_path: Path, suffix: str
) -> None:
    _record(path, 0)
    link = tmp_path / "link.db"
    os.link(path, link)
    if suffix == "-wal":
        os.unlink(link)
        writer = SampleStore.open(path)
        writer.run("run").record_train(1, [[Sample()]])
        os.link(path, link)
    else:  # of a writer that was killed; SQLite plays it back for those only who come by this name
        Path(f"{path}{suffix}").write_bytes(b"what the pages were")
    for _ in range(2):
        with pytest.raises(DatabaseError, match=rf"link\.db.*store\.db{suffix} .*open it as store\.db"):
            SampleStore.open(link, read_only=True).run("run", create=False)
    if suffix == "-wal":
        with SampleStore.open(path, read_only=True) as reader:
            assert len(reader.run("run", create=False).rollouts()) == 2  # this one sees the log
        writer.close()
    else:
        os.unlink(f"{path}{suffix}")
    with SampleStore.open(link, read_only=True) as reader:
        assert len(reader.run("run", create=False).rollouts()) == (2 if suffix == "-wal" else 1)


def test_a_file_with_two_names_and_no_log_is_read_by_each_of_them(path: Path, tmp_path: Path) -> None:
    _record(path, 0)
    link = tmp_path / "link.db"
    os.link(path, link)
    with SampleStore.open(link, read_only=True) as one, SampleStore.open(path, read_only=True) as other:
        for store in (one, other, one):
            assert [info.rollout_id for info in store.run("run", create=False).rollouts()] == [0]
        one.backup(tmp_path / "backup.db")
    os.unlink(link)
    _record(path, 1)


def test_a_reader_is_warned_of_a_second_name_that_is_in_another_directory(path: Path, tmp_path: Path) -> None:
    _record(path, 0)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    os.link(path, link)
    for name in (link, path):
        with pytest.warns(SecondNameWarning, match=rf"{name} has 1 other name.*elsewhere.*is not seen") as warned:
            assert SampleStore.open(name, read_only=True).runs()
        assert warned[0].filename == __file__  # the line that opens the store
        assert SampleStore.open(name, read_only=True).runs()  # a second warning would be an error


def test_the_name_under_which_a_store_was_made_is_no_second_name(path: Path, tmp_path: Path) -> None:
    _record(path, 0)
    os.link(
        path, tmp_path / ".slime_store-0123456789abcdef.new"
    )  # as a process killed while it made the store leaves it
    _record(path, 1)


def test_a_file_that_is_mounted_alone_is_warned_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SampleStore.open(path).close()
    mounts = [("/", "ext4"), (os.path.realpath(path), "ext4")]
    monkeypatch.setattr("slime_store.database.filesystem._mounts", lambda: iter(mounts))
    with pytest.warns(FileMountWarning, match=r"log store\.db-wal is not beside the real one.*Mount the directory"):
        SampleStore.open(path).run("run")
    SampleStore.open(path).run("run")  # a second warning would be an error


def _present(path: Path) -> list[int]:
    with SampleStore.open(path) as store:
        return [info.rollout_id for info in store.run("run").rollouts()] if store.runs() else []


def _moved(path: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    os.rename(path, target)
    path.symlink_to(target)


@pytest.mark.parametrize("to", ["elsewhere/store.db", "elsewhere/other.db", "other.db"])
def test_a_file_that_was_moved_and_is_a_link_now_is_refused_and_closing_saves_everything(path: Path, to: str) -> None:
    store = SampleStore.open(path)
    run = store.run("run")
    run.record_train(0, [[Sample()]])
    target = path.parent / to
    _moved(path, target)
    for rollout_id in (1, 2):
        with pytest.raises(DatabaseError, match=rf"was moved to .*{target.name} while it was open.*Close the store"):
            run.record_train(rollout_id, [[Sample()]])
    with pytest.raises(DatabaseError, match="was moved to"):
        run.rollouts()
    for read_only in (False, True):  # whoever comes by the link would keep a log of his own beside the file
        with pytest.raises(DatabaseError, match=r"store\.db-wal lies beside the link"):
            SampleStore.open(path, read_only=read_only)
    store.close()
    assert _present(path) == _present(target) == [0]


@pytest.mark.parametrize("links", [1, 2])
def test_a_log_that_a_killed_process_left_beside_a_link_is_asked_for(path: Path, tmp_path: Path, links: int) -> None:
    process = FORK.Process(target=_record_and_be_killed, args=(path,))
    process.start()
    process.join(PATIENCE_SECONDS)
    target, name = tmp_path / "elsewhere" / "other.db", path
    _moved(path, target)
    if links == 2:
        name = tmp_path / "link.db"
        name.symlink_to("store.db")
    with pytest.raises(
        DatabaseError, match=r"store\.db-wal lies beside the link .*store\.db.*move it to .*other\.db-wal"
    ):
        SampleStore.open(name)
    os.rename(f"{path}-wal", f"{target}-wal")
    assert _present(name) == [0]


def _record_and_be_killed(path: Path) -> None:
    SampleStore.open(path).run("run").record_train(0, [[Sample()]])
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_directory_that_was_moved_and_is_a_link_now_is_still_the_stores(path: Path, journal: str) -> None:
    home, moved = path.parent / "runs", path.parent / "moved"
    home.mkdir()
    path = home / "store.db"
    _record(path, 0)
    _set_journal(path, journal)
    with SampleStore.open(path) as store:
        run = store.run("run")
        run.record_train(1, [[Sample()]])
        _moved(home, moved)
        run.record_train(2, [[Sample()]])
        other = SPAWN.Process(target=_record, args=(path, 3))
        other.start()
        other.join(PATIENCE_SECONDS)
        run.record_train(4, [[Sample()]])
        assert [info.rollout_id for info in run.rollouts()] == _present(moved / "store.db") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("what", ["directory above", "link"])
def test_a_way_that_leads_elsewhere_later_is_refused(path: Path, what: str, journal: str) -> None:
    for name in ("one", "two"):
        (path.parent / name).mkdir()
        _record(path.parent / name / "store.db", 0)
        _set_journal(path.parent / name / "store.db", journal)
    link = path.parent / ("dir" if what == "directory above" else "store.db")
    end = "" if what == "directory above" else "store.db"
    link.symlink_to(path.parent / "one" / end)
    store = SampleStore.open(link / ("store.db" if not end else ""))
    run = store.run("run")
    run.record_train(1, [[Sample()]])
    link.unlink()
    link.symlink_to(path.parent / "two" / end)
    with pytest.raises(DatabaseError, match="was moved"):
        run.record_train(2, [[Sample()]])
    store.close()
    assert (_present(path.parent / "one" / "store.db"), _present(path.parent / "two" / "store.db")) == ([0, 1], [0])


def test_a_file_with_a_rollback_journal_that_was_moved_and_is_a_link_now_is_refused(path: Path) -> None:
    """Nobody would find the journal that a crash leaves, nor the side files."""
    _record(path, 0)
    _set_journal(path, "delete")
    with SampleStore.open(path) as store:
        run = store.run("run")
        run.record_train(1, [[Sample()]])
        _moved(path, path.parent / "elsewhere" / "store.db")
        with pytest.raises(DatabaseError, match="was moved to"):
            run.record_train(2, [[Sample()]])
    assert _present(path) == [0, 1]


def _set_journal(path: Path, mode: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
