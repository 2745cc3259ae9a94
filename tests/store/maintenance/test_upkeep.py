"""``store_status`` and ``upgrade_store``: for stores of any state."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, schema_change
from slime_store.errors import BackupError, NewerSchemaError, StoreNotFoundError
from slime_store.schema import HEAD, REVISIONS
from slime_store.schema.migrator import create_file, run_alembic
from slime_store.store.upkeep import store_status, upgrade_store
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import loaded_train
from tests.services.filling import make_filled, rich_train
from tests.services.tables import execute, value


def make_old(url: str, revision: str) -> None:
    """Make a store of an older schema, with one run."""
    config = StoreConfig.parse(url)
    if config.path is not None:
        config.path.touch()
    engine = create_store_engine(config)
    with schema_change(engine) as connection:
        run_alembic(connection, revision)
    engine.dispose()
    execute(url, "INSERT INTO runs (id, name, config, created_at) VALUES (1, 'old', 'null', '2026-01-01 00:00:00')")


def tree(path: Path) -> dict[str, str]:
    return {
        str(each): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(path.rglob("*"))
        if each.is_file() and not each.name.endswith("-shm") and each.stat().st_size  # a reader may make an empty log
    }


def test_a_current_store(store_url: str) -> None:
    make_filled(store_url)
    status = store_status(store_url)
    assert (status.state, status.detail, status.revision, status.code_revision) == ("current", "", HEAD, HEAD)
    assert (status.n_runs, status.n_rollouts) == (2, 5) and status.n_samples and status.size_bytes
    if store_url.startswith("sqlite"):
        assert (status.journal_mode, status.side_files) == ("wal", 4)
        assert status.file_system and status.wal_bytes is not None and status.side_file_bytes
    else:
        assert make_url(store_url).password not in status.url
        assert (status.journal_mode, status.wal_bytes, status.side_files) == (None, None, None)


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_an_old_store_is_outdated_until_it_is_upgraded(store_url: str, tmp_path: Path, revision: str) -> None:
    make_old(store_url, revision)
    before = tree(tmp_path)
    status = store_status(store_url)
    assert (status.state, status.revision, status.n_runs) == ("outdated", revision, 1)
    assert tree(tmp_path) == before
    report = upgrade_store(store_url)
    assert (report.before, report.after, report.n_rows) == (revision, HEAD, 1)
    assert store_status(store_url).state == "current"
    assert value(store_url, "SELECT name FROM runs") == "old"
    if store_url.startswith("sqlite"):
        assert report.backup == str(tmp_path / f"store.db.schema-{revision}.backup")
        backup = store_status(report.backup)
        assert (backup.state, backup.revision, backup.n_runs) == ("outdated", revision, 1)
    else:
        assert report.backup is None
    again = upgrade_store(store_url)
    assert (again.before, again.after, again.backup) == (HEAD, HEAD, None)


def test_an_upgrade_without_backup(sqlite_url: str, tmp_path: Path) -> None:
    make_old(sqlite_url, "0001")
    assert upgrade_store(sqlite_url, backup=False).backup is None
    assert not list(tmp_path.glob("*.backup*"))


def test_an_upgrade_whose_backup_fails_is_not_begun(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_old(sqlite_url, "0001")

    def fail(*_: object) -> None:
        raise BackupError("here", "no space")

    monkeypatch.setattr("slime_store.store.upkeep.backup_database", fail)
    with pytest.raises(BackupError):
        upgrade_store(sqlite_url)
    assert store_status(sqlite_url).revision == "0001"


def test_k3_a_newer_store_is_refused_and_names_the_version_it_needs(store_url: str) -> None:
    make_filled(store_url)
    execute(
        store_url,
        "UPDATE slime_store_version SET version_num = '9999'",
        """UPDATE sessions SET client = '{"slime_store":"7.10.0"}'""",
    )
    status = store_status(store_url)
    assert (status.state, status.revision, status.n_rollouts) == ("newer", "9999", 5)
    assert "7.10.0" in status.detail
    with pytest.raises(NewerSchemaError, match=r"upgrade the slime_store package to 7\.10\.0 or later"):
        upgrade_store(store_url)


def test_a_missing_store_is_not_made(store_url: str, tmp_path: Path) -> None:
    assert store_status(store_url).state == "missing"
    with pytest.raises(StoreNotFoundError):
        upgrade_store(store_url)
    assert list(tmp_path.iterdir()) == []


def test_another_programs_file_and_a_damaged_one(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.db"
    engine = create_engine(f"sqlite:///{theirs}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE runs (id INTEGER)"))
    engine.dispose()
    assert store_status(theirs).state == "foreign"
    (tmp_path / "empty.db").touch()
    assert store_status(tmp_path / "empty.db").state == "damaged"
    config = StoreConfig.parse(tmp_path / "cut.db")
    create_file(config, tmp_path / "cut.db")
    (tmp_path / "cut.db").write_bytes((tmp_path / "cut.db").read_bytes()[:40000])
    before = tree(tmp_path)
    status = store_status(tmp_path / "cut.db")
    assert status.state == "damaged" and status.size_bytes == 40000
    assert tree(tmp_path) == before


def test_an_upgraded_store_reads_as_before(sqlite_url: str) -> None:
    make_filled(sqlite_url)
    upgrade_store(sqlite_url)
    assert_same(loaded_train(sqlite_url, 1), rich_train(2))
