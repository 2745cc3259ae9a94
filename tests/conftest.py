"""Databases for the tests: every store is real, an SQLite file or a database of a private PostgreSQL server."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from slime_store.schema import migrator
from tests.services import outside, postgres, quick_schema

# the same examples each time: what fails here fails for everybody, and `thorough` looks for more
hypothesis.settings.register_profile("default", deadline=None, print_blob=True, max_examples=12, derandomize=True)
hypothesis.settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

STRICTEST_VARIABLE_LIMIT = 999  # some builds of SQLite still stop there


@event.listens_for(Pool, "connect")
def _limit_variables(connection: Any, _record: Any) -> None:
    """Run the whole suite on the strictest SQLite there is (case L1); Python 3.10 cannot set it."""
    if isinstance(connection, sqlite3.Connection) and hasattr(connection, "setlimit"):
        connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, STRICTEST_VARIABLE_LIMIT)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    """A running PostgreSQL server of this test process."""
    if postgres.server_programs() is None:
        if postgres.is_required():
            pytest.fail(f"{postgres.MISSING}, and {postgres.REQUIRE_VARIABLE} is set", pytrace=False)
        pytest.skip(postgres.MISSING)
    with postgres.PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: postgres.PostgresServer) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, password included."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty place for a store, on each database in turn."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_url"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the slow group what is marked ``slow_on_postgresql``, where it is tried on PostgreSQL."""
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        databases = [parameters.get(name) for name in ("store_url", "target_url")]
        if "postgresql" in databases and item.get_closest_marker("slow_on_postgresql"):
            item.add_marker(pytest.mark.slow)
        if databases == ["postgresql", "postgresql"]:
            item.add_marker(pytest.mark.slow)  # what one of the two does wrong, it does beside SQLite too


@pytest.fixture(autouse=True)
def _quick_schema(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make new stores from statements that the migrations once sent, except in the tests of the schema."""
    if not {"schema", "migrations"} & set(request.path.parts):
        monkeypatch.setattr(migrator, "run_alembic", quick_schema.run_alembic)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say loudly when one of the two databases, or what needs something from outside, was not tested."""
    if postgres.server_programs() is None:
        terminalreporter.section("PostgreSQL was NOT tested", sep="!", red=True, bold=True)
        terminalreporter.line(f"{postgres.MISSING}; the tests that need it were skipped or failed.")
        terminalreporter.line("On Debian: apt-get install postgresql")
    if terminalreporter.config.option.markexpr == "not slow":
        terminalreporter.line("The long versions of the tests of faults were left out: make test-slow (hours).")
    for what, remedy in outside.missing():
        terminalreporter.section(f"{what} was NOT tested", sep="!", red=True, bold=True)
        terminalreporter.line(f"The tests that need it were skipped: {remedy}")
