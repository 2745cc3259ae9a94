"""How SQLite files are opened: pragmas, pools, read-only files, file systems (cases K6, H3, H7, H10)."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine

from slime_store.database import filesystem_type, read, settle_journal, write
from slime_store.database import sqlite as sqlite_module
from slime_store.database.filesystem import NetworkFileSystemWarning, is_network
from slime_store.errors import DamagedStoreError, ReadOvertakenError, StoreBusyError, StoreNotFoundError
from tests.database.conftest import MakeEngine, insert


def pragma(engine: Engine, name: str) -> object:
    with read(engine) as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()


def count(engine: Engine) -> int:
    with read(engine) as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM t").scalar_one())


def test_k6_every_pooled_connection_has_foreign_keys_and_full_durability(
    make_store: MakeEngine, sqlite_url: str
) -> None:
    engine = make_store(sqlite_url)
    with read(engine) as first, read(engine) as second, read(engine) as third:
        assert first.connection.driver_connection is not second.connection.driver_connection
        for connection in (first, second, third):
            values = [connection.exec_driver_sql(f"PRAGMA {p}").scalar_one() for p in ("foreign_keys", "busy_timeout")]
            assert values == [1, 20_000]
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() >= 2
            for name in ("fullfsync", "checkpoint_fullfsync"):  # on macOS nothing less reaches the disk
                assert connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() == 1


def test_a_new_file_has_our_page_size_our_mark_and_a_write_ahead_log(make_store: MakeEngine, sqlite_url: str) -> None:
    engine = make_store(sqlite_url)
    assert pragma(engine, "page_size") == sqlite_module.PAGE_SIZE
    assert pragma(engine, "application_id") == sqlite_module.APPLICATION_ID
    assert 0 < pragma(engine, "user_version") < 2**31
    assert pragma(engine, "journal_mode") == "wal"


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Say that every file is on a file system of this type from now on."""
    return lambda kind: monkeypatch.setattr("slime_store.database.filesystem.filesystem_type", lambda _path: kind)


@pytest.mark.parametrize("waits", [True, False])
def test_h3_with_a_rollback_journal_a_commit_waits_for_readers_as_long_as_it_may(
    make_store: MakeEngine, make_engine: MakeEngine, tmp_path: Path, network: Callable[[str], None], waits: bool
) -> None:
    network("nfs4")
    path = tmp_path / "s.db"
    make_store(path)
    reader, writer = make_engine(path, read_only=True), make_engine(path, busy_timeout=20 if waits else 0.1)
    inside, outcome = threading.Event(), list[str]()

    def write_one() -> None:
        inside.wait()
        try:
            insert(writer, 1)
            outcome.append("written")
        except StoreBusyError:
            outcome.append("busy")

    thread = threading.Thread(target=write_one)
    thread.start()
    with read(reader) as connection:
        n_rows = connection.exec_driver_sql("SELECT count(*) FROM t").scalar_one()
        inside.set()
        thread.join(0.2 if waits else 20)
        assert outcome == ([] if waits else ["busy"])
        assert connection.exec_driver_sql("SELECT count(*) FROM t").scalar_one() == n_rows == 0
    thread.join()
    assert outcome == (["written"] if waits else ["busy"])
    insert(writer, 2)
    assert count(reader) == (2 if waits else 1)


@pytest.mark.parametrize("kind", ["nfs4", "wekafs", "fuse.sshfs"])
def test_h3_a_network_file_system_gets_a_rollback_journal_and_one_warning(
    make_store: MakeEngine, make_engine: MakeEngine, tmp_path: Path, network: Callable[[str], None], kind: str
) -> None:
    network(kind)
    engine = make_store(tmp_path / "s.db")
    with pytest.warns(NetworkFileSystemWarning, match=rf"\({kind}\): the store uses a rollback journal.*PostgreSQL"):
        settle_journal(engine)
    assert pragma(engine, "journal_mode") == "delete"
    again = make_engine(tmp_path / "s.db")
    settle_journal(again)  # a second warning would be an error
    insert(again, 1)
    assert pragma(again, "journal_mode") == "delete"


def test_h3_a_write_ahead_log_that_came_to_a_network_file_system_is_left(
    make_store: MakeEngine, make_engine: MakeEngine, tmp_path: Path, network: Callable[[str], None]
) -> None:
    engine = make_store(tmp_path / "s.db")
    insert(engine, 1)
    engine.dispose()
    network("lustre")
    reader = make_engine(tmp_path / "s.db", read_only=True)
    with pytest.warns(NetworkFileSystemWarning, match="write-ahead-log mode"):
        settle_journal(reader)
    reader.dispose()
    engine = make_engine(tmp_path / "s.db")
    assert pragma(engine, "journal_mode") == "wal"
    with pytest.warns(NetworkFileSystemWarning, match="rollback journal"):
        settle_journal(engine)
    assert pragma(engine, "journal_mode") == "delete"
    insert(engine, 2)
    assert count(engine) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]


def test_h3_a_write_ahead_log_in_use_stays_and_the_warning_says_so(
    make_store: MakeEngine, make_engine: MakeEngine, tmp_path: Path, network: Callable[[str], None]
) -> None:
    user = make_store(tmp_path / "s.db")
    insert(user, 1)  # and keeps a connection
    network("nfs")
    engine = make_engine(tmp_path / "s.db")
    with pytest.warns(NetworkFileSystemWarning, match="write-ahead-log mode.*PostgreSQL"):
        settle_journal(engine)
    for each in (engine, user):
        insert(each, count(each) + 1)
        assert pragma(each, "journal_mode") == "wal"


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_h3_on_a_local_file_system_the_journal_mode_is_the_users(
    make_store: MakeEngine, tmp_path: Path, network: Callable[[str], None], mode: str
) -> None:
    network("ext4")
    engine = make_store(tmp_path / "s.db")
    engine.dispose()
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    settle_journal(engine)
    assert pragma(engine, "journal_mode") == mode


def test_h3_file_systems_of_several_machines_are_known() -> None:
    kinds = {"9p", "afs", "beegfs", "cifs", "fuse", "fuse.juicefs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "virtiofs"}
    assert {kind for kind in kinds | {"weka", "wekafs"} if not is_network(kind)} == set()


def test_h3_the_mount_table_is_read_with_nested_and_escaped_mount_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/a / ext4 rw 0 0\nhost:/x /data nfs4 rw 0 0\ntmpfs /data/scratch tmpfs rw 0 0\n"
        "host:/y /my\\040runs lustre rw 0 0\nbroken line\n"
    )
    monkeypatch.setattr("slime_store.database.filesystem._MOUNT_TABLE", table)
    assert filesystem_type("/data/runs/s.db") == "nfs4"
    assert filesystem_type("/data/scratch/s.db") == "tmpfs"
    assert filesystem_type("/database/s.db") == "ext4"
    assert filesystem_type("/my runs/s.db") == "lustre"
    monkeypatch.setattr("slime_store.database.filesystem._MOUNT_TABLE", tmp_path / "absent")
    monkeypatch.setattr("slime_store.database.filesystem._darwin_mounts", lambda: "")
    assert filesystem_type("/data/runs/s.db") == ""
    assert not is_network("") and not is_network("ext4") and not is_network("fuse.fuse-overlayfs")


def test_h3_the_mounts_of_macos_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = (
        "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
        "host:/runs on /Volumes/my runs (old) (nfs, nodev, nosuid, mounted by me)\n"
        "//me@host/share on /Volumes/share (smbfs)\nmap auto_home on /home (autofs, automounted)\n"
    )
    monkeypatch.setattr("slime_store.database.filesystem._MOUNT_TABLE", tmp_path / "absent")
    monkeypatch.setattr("slime_store.database.filesystem._darwin_mounts", lambda: told)
    assert filesystem_type("/Users/me/s.db") == "apfs"
    assert filesystem_type("/Volumes/my runs (old)/s.db") == "nfs"
    assert filesystem_type("/Volumes/share/s.db") == "smbfs"


def test_no_connection_ever_creates_a_file(make_engine: MakeEngine, tmp_path: Path) -> None:
    for read_only in (True, False):
        with pytest.raises(StoreNotFoundError), read(make_engine(tmp_path / "absent.db", read_only=read_only)):
            pass
    with pytest.raises(StoreNotFoundError), write(make_engine(tmp_path / "absent.db")):
        pass
    assert list(tmp_path.iterdir()) == []


def test_names_that_mean_something_in_a_uri_are_only_names(make_store: MakeEngine, tmp_path: Path) -> None:
    for name in ("a b.db", "a%20b.db", "a#b.db", "ü.db"):
        insert(make_store(tmp_path / name), 1)
        assert (tmp_path / name).stat().st_size > 0


def test_a_path_may_begin_with_two_slashes(make_store: MakeEngine, tmp_path: Path) -> None:
    insert(make_store(f"/{tmp_path}/s.db"), 1)
    insert(make_store(f"sqlite:////{tmp_path}/t.db"), 1)
    assert (tmp_path / "s.db").stat().st_size > 0 and (tmp_path / "t.db").stat().st_size > 0


def test_h11_a_reader_sees_what_is_committed_while_a_writer_is_at_work(
    make_store: MakeEngine, make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_store(tmp_path / "s.db")
    reader = make_engine(tmp_path / "s.db", read_only=True, busy_timeout=0.0)
    insert(engine, 1)
    with write(engine) as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (2, '')")
        assert count(reader) == 1
    assert count(reader) == 2


def frozen_copy(source: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy a closed store to where this process may not write (root may everywhere, so it is told that it may not)."""
    directory.mkdir()
    copy = directory / "s.db"
    shutil.copy(source, copy)
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != directory and may(path, mode))
    return copy


def test_h10_a_file_in_a_read_only_directory_opens_without_making_files(
    make_store: MakeEngine, make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_store(tmp_path / "s.db")
    insert(engine, 1)
    engine.dispose()
    copy = frozen_copy(tmp_path / "s.db", tmp_path / "frozen", monkeypatch)
    before = hashlib.sha256(copy.read_bytes()).hexdigest()
    reader = make_engine(copy, read_only=True)
    assert count(reader) == 1
    assert [path.name for path in copy.parent.iterdir()] == ["s.db"]
    assert hashlib.sha256(copy.read_bytes()).hexdigest() == before


def test_a_file_read_without_locks_is_read_with_locks_once_a_writer_comes(
    make_store: MakeEngine, make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path / "s.db").dispose()
    copy = frozen_copy(tmp_path / "s.db", tmp_path / "frozen", monkeypatch)
    reader = make_engine(copy, read_only=True)
    assert count(reader) == 0
    insert(make_engine(copy), 1)
    assert count(reader) == 1


@pytest.mark.parametrize("has_ended", [False, True])
@pytest.mark.parametrize("looks_damaged", [False, True])
def test_what_a_writer_overtakes_while_it_is_read_without_locks_is_an_error(
    make_store: MakeEngine,
    make_engine: MakeEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_ended: bool,
    looks_damaged: bool,
) -> None:
    make_store(tmp_path / "s.db").dispose()
    copy = frozen_copy(tmp_path / "s.db", tmp_path / "frozen", monkeypatch)
    reader, writer = make_engine(copy, read_only=True), make_engine(copy)
    with pytest.raises(ReadOvertakenError), read(reader) as connection:
        connection.exec_driver_sql("SELECT count(*) FROM t")
        insert(writer, 1)
        if has_ended:
            writer.dispose()
        if looks_damaged:
            raise DamagedStoreError("url", "as pages of two states look")
    assert count(reader) == 1


@pytest.mark.parametrize("target", ["sqlite://", "file"])
def test_h7_many_threads_write_and_read_at_once(make_store: MakeEngine, tmp_path: Path, target: str) -> None:
    engine = make_store(tmp_path / "s.db" if target == "file" else target)
    barrier = threading.Barrier(8)

    def work(thread: int) -> None:
        barrier.wait()
        for i in range(20):
            insert(engine, thread * 100 + i)
            assert count(engine) > 0

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert count(engine) == 160


def test_in_memory_transactions_nest_in_one_thread(make_store: MakeEngine) -> None:
    engine = make_store("sqlite://")
    with read(engine) as outer:
        insert(engine, 1)
        with pytest.raises(RuntimeError), write(engine) as inner:
            inner.exec_driver_sql("INSERT INTO t VALUES (2, '')")
            raise RuntimeError
        assert outer.exec_driver_sql("SELECT a FROM t").fetchall() == [(1,)]
    assert count(engine) == 1
