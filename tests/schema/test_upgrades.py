"""Upgrades: one transaction, children kept, nothing half done (cases K1, K2). The later revisions are made up here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, inspect, text

from slime_store.database import insert_rows, read, write
from slime_store.errors import DatabaseError
from slime_store.models import Base
from slime_store.schema import HEAD, REVISIONS, migrator, stored_revision
from slime_store.schema.location import migrations_directory

OpenStore = Callable[..., Engine]
AddRevision = Callable[[str], None]

LATER = f"{len(REVISIONS) + 1:04d}"
REVISION = """
from alembic import op
import sqlalchemy as sa
revision, down_revision = "{later}", "{head}"
def upgrade():
{body}
"""
REBUILD_RUNS = """
    recreate = "always" if op.get_bind().dialect.name == "sqlite" else "auto"
    with op.batch_alter_table("runs", recreate=recreate, table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.add_column(sa.Column("note", sa.Text()))
"""
FAIL_HALFWAY = """
    op.add_column("prompts", sa.Column("note", sa.Text()))
    op.create_table("half", sa.Column("id", sa.BigInteger(), primary_key=True))
    op.execute("INSERT INTO nowhere VALUES (1)")
"""
LEAVE_DANGLING = """
    op.execute("DELETE FROM runs")
"""
LOSE_PROMPTS = """
    op.execute("DELETE FROM prompts")
"""


@pytest.fixture
def add_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddRevision:
    """Give the migrator a copy of the migrations with one more revision."""

    def add(body: str) -> None:
        directory = tmp_path / "migrations"
        if not directory.exists():
            shutil.copytree(migrations_directory(), directory, ignore=shutil.ignore_patterns("__pycache__"))
        (directory / "versions" / f"{LATER}_later.py").write_text(REVISION.format(later=LATER, head=HEAD, body=body))
        for module in ("revisions", "migrator"):
            monkeypatch.setattr(f"slime_store.schema.{module}.REVISIONS", (*REVISIONS, LATER))
            monkeypatch.setattr(f"slime_store.schema.{module}.HEAD", LATER)
        monkeypatch.setattr(migrator, "migrations_directory", lambda: directory)

    return add


def fill(engine: Engine) -> dict[str, int]:
    """Put a run, two sessions and three prompts into a store; return the row counts of all tables."""
    from datetime import datetime, timezone

    now = datetime.now(timezone.utc)
    tables = Base.metadata.tables
    with write(engine) as connection:
        insert_rows(connection, tables["runs"], ["id", "name", "config", "created_at"], [(1, "run", "null", now)])
        insert_rows(
            connection,
            tables["sessions"],
            ["id", "run_pk", "ordinal", "host", "pid", "started_at", "client", "config"],
            [(n, 1, n, "host", 1, now, "{}", "null") for n in (1, 2)],
        )
        insert_rows(connection, tables["prompts"], ["id", "digest"], [(n, bytes([n])) for n in (1, 2, 3)])
    return counts(engine)


def counts(engine: Engine) -> dict[str, int]:
    with read(engine) as connection:
        return migrator.count_rows(connection)


def schema_dump(engine: Engine) -> dict[str, object]:
    with read(engine) as connection:
        inspector = inspect(connection)
        return {
            name: (
                [(column["name"], str(column["type"])) for column in inspector.get_columns(name)],
                sorted(str(index["name"]) for index in inspector.get_indexes(name)),
                sorted(str(key["name"]) for key in inspector.get_foreign_keys(name)),
            )
            for name in sorted(inspector.get_table_names())
        }


def test_k1_rebuilding_a_parent_table_keeps_its_children(
    open_store: OpenStore, store_url: str, add_revision: AddRevision
) -> None:
    engine = open_store(store_url)
    before = fill(engine)
    assert before["sessions"] == 2
    add_revision(REBUILD_RUNS)
    upgraded = open_store(store_url)
    assert stored_revision(upgraded) == LATER
    assert counts(upgraded) == before
    with read(upgraded) as connection:
        assert connection.scalar(text("SELECT note FROM runs")) is None
    with write(upgraded) as connection:  # references are enforced again
        connection.execute(text("DELETE FROM runs"))
    assert counts(upgraded)["sessions"] == 0


def test_k2_a_failed_upgrade_leaves_the_old_schema_and_can_be_run_again(
    open_store: OpenStore, store_url: str, add_revision: AddRevision
) -> None:
    engine = open_store(store_url)
    rows, schema = fill(engine), schema_dump(engine)
    add_revision(FAIL_HALFWAY)
    with pytest.raises(DatabaseError, match="nowhere"):
        open_store(store_url)
    assert (stored_revision(engine), counts(engine), schema_dump(engine)) == (HEAD, rows, schema)
    add_revision(REBUILD_RUNS)
    assert stored_revision(open_store(store_url)) == LATER


def test_k2_a_new_store_whose_creation_fails_is_not_there(
    open_store: OpenStore, store_url: str, tmp_path: Path, add_revision: AddRevision
) -> None:
    add_revision(FAIL_HALFWAY)
    with pytest.raises(DatabaseError, match="nowhere"):
        open_store(store_url)
    assert [path.name for path in tmp_path.iterdir()] == ["migrations"]
    add_revision(REBUILD_RUNS)
    assert stored_revision(open_store(store_url)) == LATER


def test_k1_an_upgrade_that_leaves_dangling_references_is_undone(
    open_store: OpenStore, sqlite_url: str, add_revision: AddRevision, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_store(sqlite_url)
    rows = fill(engine)
    add_revision(LEAVE_DANGLING)
    monkeypatch.setattr(migrator, "lost_rows", lambda _before, _after: "")
    with pytest.raises(DatabaseError, match="dangling references in sessions"):
        open_store(sqlite_url)
    assert (stored_revision(engine), counts(engine)) == (HEAD, rows)


def test_k1_an_upgrade_that_loses_rows_is_undone(
    open_store: OpenStore, store_url: str, add_revision: AddRevision
) -> None:
    engine = open_store(store_url)
    rows = fill(engine)
    add_revision(LOSE_PROMPTS)
    with pytest.raises(DatabaseError, match=r"lose rows of prompts \(3 -> 0\)"):
        open_store(store_url)
    assert (stored_revision(engine), counts(engine)) == (HEAD, rows)
