"""The migration scripts: complete, frozen, named, and the same as the models (case K4)."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.dialects.postgresql import dialect as postgresql_dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, read, schema_change, write
from slime_store.models import Base
from slime_store.schema import HEAD, REVISIONS, VERSION_TABLE, ensure_schema
from slime_store.schema.location import migrations_directory
from slime_store.schema.migrator import run_alembic

ROOT = Path(__file__).parents[2]
VERSIONS = sorted((migrations_directory() / "versions").glob("*.py"))


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    config = StoreConfig.parse(store_url)
    engine = create_store_engine(config)
    ensure_schema(engine, config)
    yield engine
    engine.dispose()


def test_the_package_knows_every_revision_in_order() -> None:
    script = ScriptDirectory(str(migrations_directory()))
    assert tuple(reversed([revision.revision for revision in script.walk_revisions()])) == REVISIONS
    assert script.get_heads() == [HEAD]
    assert [path.name[:4] for path in VERSIONS] == list(REVISIONS)


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_a_revision_imports_nothing_of_ours(path: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported - sys.stdlib_module_names <= {"alembic", "sqlalchemy"}


def test_k4_the_migrated_database_is_what_the_models_say(engine: Engine) -> None:
    with read(engine) as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        )
        drift = compare_metadata(context, Base.metadata)
    assert drift == [], 'the models have changed: see "revision" in the Makefile'


def test_k4_every_table_is_defined_to_the_letter_as_the_models_define_it(sqlite_url: str) -> None:
    """Alembic's comparison sees neither primary keys nor WITHOUT ROWID."""
    config = StoreConfig.parse(sqlite_url)
    engine = create_store_engine(config)
    ensure_schema(engine, config)
    with read(engine) as connection:
        rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type <> 'view' AND sql > ''")).all()
    migrated = {name: normalised(sql) for name, sql in rows if name not in (VERSION_TABLE, "sqlite_sequence")}
    modelled = {}
    for table in Base.metadata.tables.values():
        modelled[table.name] = normalised(str(CreateTable(table).compile(engine)))
        for index in table.indexes:
            modelled[str(index.name)] = normalised(str(CreateIndex(index).compile(engine)))
    engine.dispose()
    assert migrated == modelled, 'the models have changed: see "revision" in the Makefile'


def normalised(statement: str) -> list[str]:
    """Return a definition as its sorted parts: Alembic writes them in another order, and added columns on one line."""
    flat = re.sub(r"\s+", " ", statement.replace('"', "")).strip()
    head, _, rest = flat.partition("(")
    body, _, tail = rest.rpartition(")")
    parts = re.split(r",(?![^(]*\))", body)  # commas between parts, not those inside brackets
    return [head.strip(), tail.strip(), *sorted(part.strip() for part in parts)]


def test_k4_every_constraint_and_index_has_a_name(engine: Engine) -> None:
    names: list[str | None] = []
    with read(engine) as connection:
        inspector = inspect(connection)
        for table in Base.metadata.tables:
            counted = Base.metadata.tables[table].dialect_options["sqlite"]["autoincrement"]
            if engine.dialect.name != "sqlite" or not counted:
                names.append(inspector.get_pk_constraint(table)["name"])  # with AUTOINCREMENT SQLite takes no name
            names += [key["name"] for key in inspector.get_foreign_keys(table)]
            names += [constraint["name"] for constraint in inspector.get_unique_constraints(table)]
            names += [constraint["name"] for constraint in inspector.get_check_constraints(table)]
            names += [index["name"] for index in inspector.get_indexes(table)]
    assert len(names) > 40
    assert all(name and re.match(r"(pk|fk|uq|ck|ix)_", name) for name in names), names
    assert max(len(str(name)) for name in names) <= postgresql_dialect.max_identifier_length


def downgrade(connection: Connection, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations_directory()).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.downgrade(config, revision)


def test_k4_every_revision_can_be_left_and_reached_again(engine: Engine) -> None:
    for revision in [*reversed(REVISIONS[:-1]), "base"]:
        with schema_change(engine) as connection:
            downgrade(connection, revision)
    with read(engine) as connection:
        assert inspect(connection).get_table_names() == [VERSION_TABLE]
    for revision in REVISIONS:
        with schema_change(engine) as connection:
            run_alembic(connection, revision)
    with read(engine) as connection:
        assert set(inspect(connection).get_table_names()) == {*Base.metadata.tables, VERSION_TABLE}
    config = StoreConfig.parse(engine.url)
    ensure_schema(engine, config)


def test_a_store_that_was_emptied_by_a_downgrade_is_created_again(engine: Engine) -> None:
    with schema_change(engine) as connection:
        downgrade(connection, "base")
    ensure_schema(engine, StoreConfig.parse(engine.url))
    with write(engine) as connection:
        connection.execute(text("INSERT INTO prompts (digest) VALUES (:digest)"), {"digest": b"x"})


def alembic(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "alembic", *arguments], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.skipif(not (ROOT / "alembic.ini").exists(), reason="not a checkout")
def test_alembics_own_command_line_works(store_url: str) -> None:
    assert alembic("-x", f"store={store_url}", "upgrade", "head").returncode == 0
    assert alembic("-x", f"store={store_url}", "current").stdout.split() == [HEAD, "(head)"]
    check = alembic("-x", f"store={store_url}", "check")
    assert check.returncode == 0, check.stdout + check.stderr
    without = alembic("upgrade", "head")
    assert without.returncode != 0 and "SLIME_STORE_URL" in without.stdout + without.stderr
