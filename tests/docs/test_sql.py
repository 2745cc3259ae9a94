"""docs/sql.md: its questions have the answers that it shows, on both databases and in every tool that is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from tests.docs.pages import Block, as_table, blocks
from tests.services.outside import duckdb_with_sqlite

PAGE = "sql.md"


@pytest.fixture
def store(store_url: str) -> str:
    """The store that the page makes, on each database."""
    make(store_url)
    return store_url


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's store in it."""
    monkeypatch.chdir(tmp_path)
    make("runs.db")
    return tmp_path


def make(target: str) -> None:
    (block,) = blocks(PAGE, "python")
    assert '"runs.db"' in block.code
    exec(compile(block.code.replace('"runs.db"', repr(target)), PAGE, "exec"), {"__name__": "__docs__"})


def test_the_questions_have_the_answers_that_the_page_shows(store: str) -> None:
    engine = create_engine(store, connect_args={} if "sqlite" in store else {"options": "-c search_path=slime_store"})
    with engine.connect() as connection:
        for question in blocks(PAGE, "sql"):
            result = connection.execute(text(question.code))
            assert as_table(result.keys(), [tuple(row) for row in result]) == question.answer, question.code
    engine.dispose()


def run(command: list[str], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell_blocks(tool: str) -> list[Block]:
    """Return the commands with this tool that show an answer."""
    found = [block for block in blocks(PAGE, "sh") if block.code.startswith(tool) and block.answer]
    assert found
    return found


def test_the_sqlite3_shell_answers_so(folder: Path) -> None:
    if shutil.which("sqlite3") is None:
        pytest.skip("there is no sqlite3 shell")
    for block in shell_blocks("sqlite3"):
        assert run(["sh", "-c", block.code]) == block.answer


def test_datasette_answers_so(folder: Path) -> None:
    if shutil.which("datasette") is None:
        pytest.skip("datasette is not installed")
    for block in shell_blocks("datasette"):
        assert run(["sh", "-c", block.code]).strip() == block.answer.strip()


def test_duckdb_answers_so_and_has_every_view(folder: Path) -> None:
    from slime_store.models.views import VIEWS
    from tests.services.tables import rows

    connection = duckdb_with_sqlite()
    (block,) = blocks(PAGE, "duckdb")
    for statement in block.code.split(";"):
        result = connection.execute(statement)
    assert as_table([column[0] for column in result.description], result.fetchall()) == block.answer
    for view in VIEWS.values():
        columns = [f'"{column.name}"' for column in view.columns if column.type != "timestamp"]
        query = f"SELECT {', '.join(columns)} FROM {view.name} ORDER BY {', '.join(columns)}"
        expected = rows(f"sqlite:///{folder / 'runs.db'}", query.split(" ORDER")[0])
        assert sorted(connection.execute(query).fetchall(), key=repr) == sorted(expected, key=repr), view.name


@pytest.mark.postgresql
def test_psql_answers_so_and_a_reading_role_can_be_made(postgres_url: str) -> None:
    if shutil.which("psql") is None:
        pytest.skip("there is no psql")
    make(postgres_url)
    conninfo = make_url(postgres_url).set(drivername="postgresql").render_as_string(hide_password=False)
    question, grants = blocks(PAGE, "psql")
    answer = run(["psql", "-X", "-q", "-f", "-", conninfo], input=f"{question.code};\n")
    assert [line.rstrip() for line in answer.strip("\n").split("\n")] == question.answer.splitlines()
    read = "SET ROLE analyst; SELECT count(*) > 0 FROM slime_store.v_samples; RESET ROLE"
    drop = "DROP OWNED BY analyst; DROP ROLE analyst"
    answer = run(["psql", "-X", "-q", "-A", "-t", "-f", "-", conninfo], input=f"{grants.code};\n{read};\n{drop};\n")
    assert answer == "t\n"
