"""What is not a store of this version is refused with a typed error and left as it was (cases H10, K3)."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text

from slime_store import Sample, SampleStore
from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, read, schema_change, write
from slime_store.errors import (
    DamagedStoreError,
    ForeignDatabaseError,
    InvalidUrlError,
    NewerSchemaError,
    OutdatedSchemaError,
    SchemaError,
)
from slime_store.schema import HEAD, REVISIONS, VERSION_TABLE, stored_revision

OpenStore = Callable[..., Engine]


def other_programs_file(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def own_store(path: Path) -> bytes:
    """Make a store that is closed and complete in one file; return its bytes."""
    from slime_store.schema import ensure_schema

    config = StoreConfig.parse(path)
    engine = create_store_engine(config)
    ensure_schema(engine, config)
    engine.dispose()
    return path.read_bytes()


def make_empty(path: Path) -> None:
    path.touch()


def make_text(path: Path) -> None:
    path.write_text("reward,step\n1.0,3\n" * 100)


def make_pickle(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + bytes(range(256)) * 20)


def make_other_tables(path: Path) -> None:
    other_programs_file(path, "CREATE TABLE studies (id INTEGER)", "CREATE TABLE alembic_version (version_num TEXT)")


def make_other_mark(path: Path) -> None:
    other_programs_file(path, "PRAGMA application_id = 1196444487", "CREATE TABLE x (a)", "DROP TABLE x")


def make_write_ahead_log_of_another(path: Path) -> None:
    other_programs_file(path, "PRAGMA journal_mode = WAL", "CREATE TABLE studies (id INTEGER)")


def make_broken_magic(path: Path) -> None:
    path.write_bytes(b"\0" * 16 + own_store(path)[16:])


def make_broken_first_page(path: Path) -> None:
    content = bytearray(own_store(path))
    content[100:3000] = bytes(b ^ 0xFF for b in content[100:3000])
    path.write_bytes(content)


def make_cut_header(path: Path) -> None:
    path.write_bytes(own_store(path)[:50])


def make_cut_to_one_byte(path: Path) -> None:
    path.write_bytes(own_store(path)[:1])


def make_short_text(path: Path) -> None:
    path.write_text("42")


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (make_empty, DamagedStoreError),
        (make_text, ForeignDatabaseError),
        (make_pickle, ForeignDatabaseError),
        (make_other_tables, ForeignDatabaseError),
        (make_other_mark, ForeignDatabaseError),
        (make_write_ahead_log_of_another, ForeignDatabaseError),
        (make_broken_magic, DamagedStoreError),
        (make_broken_first_page, DamagedStoreError),
        (make_cut_header, DamagedStoreError),
        (make_cut_to_one_byte, DamagedStoreError),
        (make_short_text, ForeignDatabaseError),
    ],
)
def test_h10_a_file_that_is_no_store_is_refused_and_stays_as_it_was(
    open_store: OpenStore, tmp_path: Path, make: Callable[[Path], None], error: type[SchemaError], read_only: bool
) -> None:
    path = tmp_path / "runs.db"
    make(path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(error, match=r"runs\.db") as caught:
        open_store(path, read_only=read_only)
    assert type(caught.value) is error
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_h10_bytes_flipped_in_the_middle_are_reported_when_they_are_read(open_store: OpenStore, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    own_store(path)
    engine = open_store(path)
    with write(engine) as connection:
        for i in range(50):
            values = {"digest": i.to_bytes(4, "big"), "text": "t" * 5000}
            connection.execute(text("INSERT INTO prompts (digest, text) VALUES (:digest, :text)"), values)
    engine.dispose()
    content = bytearray(path.read_bytes())
    content[-10 * 16384 :] = os.urandom(10 * 16384)
    path.write_bytes(content)
    before = hashlib.sha256(content).hexdigest()
    with pytest.raises(DamagedStoreError), read(open_store(path)) as connection:
        connection.execute(text("SELECT * FROM prompts ORDER BY id")).fetchall()
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_h10_a_directory_and_a_pipe_are_no_stores(open_store: OpenStore, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(InvalidUrlError, match=r"not a regular file|a directory"):
            open_store(path)


def test_a_database_file_without_tables_becomes_a_store(open_store: OpenStore, tmp_path: Path) -> None:
    other_programs_file(tmp_path / "runs.db", "CREATE TABLE x (a)", "DROP TABLE x")
    assert stored_revision(open_store(tmp_path / "runs.db")) == HEAD


def test_a_store_that_lost_its_mark_is_still_a_store(open_store: OpenStore, tmp_path: Path) -> None:
    own_store(tmp_path / "runs.db")
    other_programs_file(tmp_path / "runs.db", "PRAGMA application_id = 0")
    assert stored_revision(open_store(tmp_path / "runs.db")) == HEAD


def set_revision(engine: Engine, revision: str) -> None:
    with write(engine) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = :r"), {"r": revision})


@pytest.mark.parametrize("read_only", [False, True])
def test_k3_a_revision_that_is_unknown_here_is_newer(open_store: OpenStore, store_url: str, read_only: bool) -> None:
    set_revision(open_store(store_url), "zzzz")
    with pytest.raises(NewerSchemaError, match="zzzz"):
        open_store(store_url, read_only=read_only)


def test_a_newer_store_whose_writers_say_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with SampleStore.open(path) as store:
        store.run("a").record_train(0, [[Sample()]])
    nullable = "UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '') WHERE name = 'sessions'"
    other_programs_file(
        path, f"UPDATE {VERSION_TABLE} SET version_num = '0099'", "PRAGMA writable_schema = 1", nullable
    )
    other_programs_file(path, "UPDATE sessions SET client = NULL")
    with pytest.raises(NewerSchemaError, match="0099"):
        SampleStore.open(path)


@pytest.mark.parametrize("client", ['{"slime_store":"%s"}' % ("9" * 5000), "[" * 100_000], ids=["long", "deep"])
def test_a_newer_store_is_refused_whatever_it_says_of_its_writers(tmp_path: Path, client: str) -> None:
    path = tmp_path / "runs.db"
    with SampleStore.open(path) as store:
        store.run("a").record_train(0, [[Sample()]])
    other_programs_file(
        path, f"UPDATE {VERSION_TABLE} SET version_num = '0099'", f"UPDATE sessions SET client='{client}'"
    )
    with pytest.raises(NewerSchemaError, match="0099"):
        SampleStore.open(path)


def test_a_reader_refuses_an_older_schema_and_never_upgrades_it(
    open_store: OpenStore, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_store(store_url)
    for module in ("revisions", "migrator"):
        monkeypatch.setattr(f"slime_store.schema.{module}.REVISIONS", (*REVISIONS, "9999"))
        monkeypatch.setattr(f"slime_store.schema.{module}.HEAD", "9999")
    with pytest.raises(OutdatedSchemaError, match=HEAD):
        open_store(store_url, read_only=True)
    assert stored_revision(engine) == HEAD


def test_two_version_rows_are_damage(open_store: OpenStore, store_url: str) -> None:
    with write(open_store(store_url)) as connection:
        connection.execute(text(f"INSERT INTO {VERSION_TABLE} VALUES ('0000')"))
    with pytest.raises(DamagedStoreError, match="2 rows"):
        open_store(store_url)


@pytest.mark.postgresql
def test_k3_other_programs_share_the_postgresql_database(open_store: OpenStore, postgres_url: str) -> None:
    other = create_store_engine(StoreConfig.parse(f"{postgres_url}&schema=public"))
    with schema_change(other) as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num TEXT)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('v2.4.0.a')")
        connection.exec_driver_sql("CREATE TABLE runs (run_uuid TEXT)")
    assert stored_revision(open_store(postgres_url)) == HEAD
    with read(other) as connection:
        assert sorted(inspect(connection).get_table_names()) == ["alembic_version", "runs"]
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "v2.4.0.a"
    other.dispose()
    with pytest.raises(ForeignDatabaseError, match="alembic_version, runs"):
        open_store(f"{postgres_url}&schema=public")
