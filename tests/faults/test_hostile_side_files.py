"""Files beside a store that came with it: SQLite is not let near what would make it touch anything else."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from slime_store import Sample, SampleStore, copy_store
from slime_store.database import filesystem
from slime_store.errors import DamagedStoreError, DatabaseError, StoreError
from slime_store.store.upkeep import store_status, upgrade_store

MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
PAGE_BYTES, SECTOR_BYTES = 16384, 512
LOCK_PAGE = 0x40000000 // PAGE_BYTES + 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "stores").mkdir()
    path = tmp_path / "stores" / "store.db"
    with SampleStore.open(path) as store:
        store.run("run").record_train(0, [[Sample(response="abc")]])
    return path


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    file = tmp_path / "precious"
    file.write_bytes(b"not yours")
    return file


def head(store: Path) -> bytes:
    """The beginning of a rollback journal of no pages, as SQLite writes it."""
    n_pages = store.stat().st_size // PAGE_BYTES
    return (MAGIC + struct.pack(">5I", 0, 1, n_pages, SECTOR_BYTES, PAGE_BYTES)).ljust(SECTOR_BYTES, b"\0")


def name_in_journal(store: Path, file: Path) -> None:
    name = os.fsencode(file)
    end = struct.pack(">I", LOCK_PAGE) + name + struct.pack(">2I", len(name), sum(name) & 0xFFFFFFFF) + MAGIC
    Path(f"{store}-journal").write_bytes(head(store) + end)


def linked(suffix: str, link: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    return lambda store, file: link(file, Path(f"{store}{suffix}"))


SPOILT: dict[str, Callable[[Path, Path], None]] = {
    "a journal that names a file": name_in_journal,
    **{f"{suffix} that is a link": linked(suffix, os.symlink) for suffix in ("-journal", "-wal", "-shm")},
    "a pipe for a journal": lambda store, _file: os.mkfifo(f"{store}-journal"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_no_way_of_opening_a_store_touches_a_file_that_it_names(
    path: Path, precious: Path, tmp_path: Path, spoil: Callable[[Path, Path], None]
) -> None:
    spoil(path, precious)
    before = path.read_bytes(), sorted(each.name for each in path.parent.rglob("*"))
    link = tmp_path / "link.db"
    link.symlink_to(path)
    ways: list[Callable[[], object]] = [
        lambda: SampleStore.open(path).runs(),
        lambda: SampleStore.open(path, read_only=True).runs(),
        lambda: SampleStore.open(link).runs(),
        lambda: upgrade_store(path),
    ]
    for way in ways:
        with pytest.raises(DamagedStoreError, match=r"store\.db-(journal|wal|shm) beside it"):
            way()
    status = store_status(path)
    assert status.state == "damaged" and "beside it" in status.detail and status.revision is None
    assert precious.read_bytes() == b"not yours" and precious.stat().st_size == 9
    assert (path.read_bytes(), sorted(each.name for each in path.parent.rglob("*"))) == before
    for each in path.parent.glob("*-*l"):  # the journal or the log
        each.unlink()
    Path(f"{path}-shm").unlink(missing_ok=True)
    with SampleStore.open(path) as store:
        assert store.run("run").load_train(0).samples[0][0].response == "abc"


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_what_has_a_second_name_is_not_written_to(path: Path, precious: Path, suffix: str) -> None:
    os.link(precious, Path(f"{path}{suffix}"))
    for way in (lambda: SampleStore.open(path).runs(), lambda: upgrade_store(path)):
        with pytest.raises(StoreError, match=rf"store\.db{suffix} beside it has a second name"):
            way()
    with contextlib.suppress(StoreError), SampleStore.open(path, read_only=True) as store:
        assert suffix == "-wal" and store.runs()
    assert precious.read_bytes() == b"not yours"


def test_a_log_with_a_second_name_is_read_and_kept(tmp_path: Path) -> None:
    """As after a snapshot by hard links of a directory whose trainer was killed: the rollouts are in the log."""
    path, log = tmp_path / "killed.db", tmp_path / "killed.db-wal"
    with SampleStore.open(tmp_path / "store.db") as store:
        run = store.run("run")
        for rollout_id in range(3):
            run.record_train(rollout_id, [[Sample(response="abc")]])
        for suffix in ("", "-wal"):
            shutil.copy(tmp_path / f"store.db{suffix}", f"{path}{suffix}")
    os.link(log, tmp_path / "snapshot")
    with SampleStore.open(path, read_only=True) as store:
        assert len(store.run("run", create=False).rollouts()) == 3
    with pytest.raises(
        DatabaseError, match=r"; close the store everywhere.*cp -p killed\.db-wal t && mv t killed\.db-wal"
    ):
        SampleStore.open(path)
    shutil.copy2(log, tmp_path / "t")
    os.replace(tmp_path / "t", log)
    with SampleStore.open(path) as store:
        assert len(store.run("run", create=False).rollouts()) == 3


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
def test_a_log_with_a_second_name_of_a_store_that_is_open_is_left_alone_until_it_is_closed(
    path: Path, tmp_path: Path, suffix: str
) -> None:
    """What is recorded while somebody copies the log, and moves the copy to its place, would be lost."""
    with SampleStore.open(path) as store:
        run = store.run("run")
        n_before = len(run.rollouts())
        run.record_train(1, [[Sample()]])
        if suffix == "-journal":
            Path(f"{path}{suffix}").touch()
        os.link(f"{path}{suffix}", tmp_path / "snapshot")
        with pytest.raises(DatabaseError, match=r"\(a hard link\).* as well; close the store everywhere"):
            SampleStore.open(path)
        run.record_train(2, [[Sample()]])
    if suffix == "-journal":
        Path(f"{path}{suffix}").unlink()
    with SampleStore.open(path) as store:
        assert len(store.run("run").rollouts()) == n_before + 2


def test_a_connection_that_is_opened_later_looks_again(path: Path, precious: Path) -> None:
    with SampleStore.open(path, read_only=True) as store:
        store._handle.engine.dispose()
        name_in_journal(path, precious)
        for act in (store.runs, lambda: store.backup(path.with_name("backup.db"))):
            with pytest.raises(StoreError, match="names another file"):
                act()
        with pytest.raises(StoreError, match="names another file"):
            copy_store(store, path.with_name("copy.db"))
        assert "names another file" in str(store.verify())
    assert precious.read_bytes() == b"not yours"


def test_leaving_the_log_on_a_network_file_system_looks_too(
    path: Path, precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slime_store.database.journal import _leave_write_ahead_log

    monkeypatch.setattr(filesystem, "is_network", lambda _kind: True)
    name_in_journal(path, precious)
    with pytest.raises(DamagedStoreError, match="names another file"):
        _leave_write_ahead_log(path)
    assert precious.read_bytes() == b"not yours"


def test_a_new_store_takes_over_no_file_that_waits_for_it(tmp_path: Path, precious: Path) -> None:
    path = tmp_path / "store.db"
    for suffix in ("-journal", "-wal", "-shm"):
        for target in (precious, tmp_path / "nothing"):
            Path(f"{path}{suffix}").symlink_to(target)
            with pytest.raises(DamagedStoreError, match=rf"store\.db{suffix}"):
                SampleStore.open(path).runs()
            assert not path.exists()
            Path(f"{path}{suffix}").unlink()
    assert precious.read_bytes() == b"not yours" and not (tmp_path / "nothing").exists()


def test_a_journal_that_a_crash_left_is_played_back(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[-PAGE_BYTES:] = b"\xff" * PAGE_BYTES
    path.write_bytes(changed)
    page = whole[-PAGE_BYTES:]
    checksum = (1 + sum(page[at] for at in range(PAGE_BYTES - 200, 0, -200))) & 0xFFFFFFFF
    record = struct.pack(">I", len(whole) // PAGE_BYTES) + page + struct.pack(">I", checksum)
    count = struct.pack(">I", 1)
    journal = Path(f"{path}-journal")
    journal.write_bytes(head(path)[:8] + count + head(path)[12:] + record)
    with SampleStore.open(path) as store:
        assert store.verify().ok
    assert path.read_bytes() == whole and not journal.exists()
