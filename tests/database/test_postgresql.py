"""How PostgreSQL connections are set up: a schema of their own, durable commits, hidden passwords (cases K3, H6)."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from sqlalchemy import make_url, text

from slime_store import RolloutFnTrainOutput, Sample, SampleFilter, SampleStore
from slime_store.database import read, schema_change, write
from slime_store.errors import DatabaseError, InvalidUrlError, MissingPackageError, StoreBusyError
from slime_store.repositories.locks import lock_shared_content
from slime_store.testing import assert_same
from tests.database.conftest import MakeEngine, insert
from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.postgresql


def test_k3_tables_live_in_a_schema_of_their_own(make_store: MakeEngine, postgres_url: str) -> None:
    engine = make_store(postgres_url)
    with read(engine) as connection:
        found = connection.execute(text("SELECT table_schema FROM information_schema.tables WHERE table_name = 't'"))
        assert found.fetchall() == [("slime_store",)]


def test_two_teams_share_a_database_by_the_schema_option(make_store: MakeEngine, postgres_url: str) -> None:
    ours, theirs = make_store(postgres_url), make_store(f"{postgres_url}&schema=team_a")
    insert(ours, 1)
    insert(ours, 2)
    insert(theirs, 1)
    for engine, expected in ((ours, 2), (theirs, 1)):
        with read(engine) as connection:
            assert connection.scalar(text("SELECT count(*) FROM t")) == expected


@pytest.mark.parametrize("name", ["Team", "a b", 'a"; DROP TABLE t; --', "pg_catalog"])
def test_a_schema_that_is_no_plain_name_is_refused(make_engine: MakeEngine, postgres_url: str, name: str) -> None:
    url = make_url(postgres_url).update_query_dict({"schema": name}).render_as_string(hide_password=False)
    with pytest.raises(InvalidUrlError) as caught:
        make_engine(url)
    assert "p%40ss" not in str(caught.value)


def test_an_existing_schema_needs_no_right_to_create_one(make_store: MakeEngine, postgres_url: str) -> None:
    engine = make_store(postgres_url)
    with schema_change(engine) as connection:
        connection.exec_driver_sql("CREATE ROLE visitor NOLOGIN")
        connection.exec_driver_sql("GRANT ALL ON SCHEMA slime_store TO visitor")
        connection.exec_driver_sql("SET LOCAL ROLE visitor")
    with schema_change(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE u (a INTEGER)")
        connection.exec_driver_sql("DROP ROLE IF EXISTS nobody_at_all")


def test_commits_are_durable_even_where_the_server_says_otherwise(make_store: MakeEngine, postgres_url: str) -> None:
    engine = make_store(postgres_url)
    with schema_change(engine) as connection:
        connection.exec_driver_sql("DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET synchronous_commit = off', "
                                   "current_database()); END $$")  # fmt: skip
    engine.dispose()
    with read(engine) as connection:
        assert connection.scalar(text("SHOW synchronous_commit")) == "on"
        assert connection.scalar(text("SHOW search_path")) == '"slime_store"'
        assert connection.scalar(text("SHOW lock_timeout")) == "20s"
        assert connection.scalar(text("SHOW transaction_isolation")) == "repeatable read"


@pytest.mark.parametrize(
    "setting",
    [
        "extra_float_digits = 0",
        "standard_conforming_strings = off",
        "array_nulls = off",
        "transform_null_equals = on",
        "datestyle = 'German'",
        "bytea_output = 'escape'",
        "timezone = 'Asia/Kathmandu'",
        "default_transaction_isolation = 'serializable'",
        "client_encoding = 'LATIN1'",
        "search_path = 'pg_temp'",
    ],
)
def test_what_a_database_presets_changes_no_value(postgres_server: PostgresServer, setting: str) -> None:
    sample = Sample(prompt=[{"role": "user", "content": "a\\x41"}], response="\\x41\\n'", reward=0.1 + 0.2)
    sample.non_generation_time, sample.metadata = 1 / 3, {"key": "\\", "none": None}
    sample.odd = np.arange(5000)  # type: ignore[attr-defined]
    output = RolloutFnTrainOutput([[sample]], metrics={"mean": 1e-300, "third": 1 / 3})
    with postgres_server.database() as url:
        name = make_url(url).database
        with postgres_server._admin() as admin:
            admin.execute(f"ALTER DATABASE {name} SET {setting}")
        with SampleStore.open(url) as store:
            run = store.run("a\\x41")
            info = run.record_train(0, output)
            assert_same(run.load_train(0, sample_type=Sample), output)
            assert run.load_batch(0)["rewards"] == [0.1 + 0.2]
            assert [each.reward for each in run.iter_samples(SampleFilter(reward_min=0.3))] == [0.1 + 0.2]
            assert run.rollouts() == [info]
            assert store.verify().ok


def test_a_connection_that_died_is_replaced(make_store: MakeEngine, make_engine: MakeEngine, postgres_url: str) -> None:
    engine = make_store(postgres_url)
    with read(engine) as connection:
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
    with read(make_engine(postgres_url)) as connection:
        assert connection.scalar(text(f"SELECT pg_terminate_backend({pid}, 10000)"))
    insert(engine, 1)
    insert(engine, 2)


def test_a_database_that_cannot_hold_every_text_is_refused(
    make_engine: MakeEngine, postgres_server: PostgresServer
) -> None:
    with (
        postgres_server.database(encoding="LATIN1") as url,
        pytest.raises(DatabaseError, match="LATIN1"),
        schema_change(make_engine(url)),
    ):
        pass


def test_writes_are_read_committed_whatever_the_servers_default(make_store: MakeEngine, postgres_url: str) -> None:
    engine = make_store(postgres_url)
    with schema_change(engine) as connection:
        connection.exec_driver_sql("DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET default_transaction_isolation "
                                   "= serializable', current_database()); END $$")  # fmt: skip
    engine.dispose()
    for begin in (write, schema_change):
        with begin(engine) as connection:
            assert connection.scalar(text("SHOW transaction_isolation")) == "read committed"
    with read(engine) as connection:
        assert connection.scalar(text("SHOW transaction_isolation")) == "repeatable read"


def test_h6_a_password_in_the_query_is_used_and_shown_nowhere(make_store: MakeEngine, postgres_url: str) -> None:
    url = make_url(postgres_url)
    given = url.set(password=None).update_query_dict({"password": url.password or ""})
    engine = make_store(given.render_as_string())
    insert(engine, 1)
    assert "p@ss" not in repr(engine) and "p%40ss" not in repr(engine)


def test_a_missing_driver_is_named_with_the_way_to_get_it(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingPackageError, match=r"psycopg.*pip install 'slime-store\[postgres\]'") as caught:
        make_engine("postgresql://host/db")
    assert isinstance(caught.value, ImportError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_schema_change_does_not_wait_for_who_keeps_shared_content(
    make_store: MakeEngine, make_engine: MakeEngine, postgres_url: str
) -> None:
    with write(make_store(postgres_url)) as connection:
        lock_shared_content(connection, exclusive=True)
        with schema_change(make_engine(postgres_url, busy_timeout=1.0)) as other:
            other.exec_driver_sql("CREATE TABLE u (a INTEGER)")


@pytest.mark.parametrize("seconds", [0, 0.0004])
def test_who_does_not_want_to_wait_for_a_lock_does_not(postgres_url: str, seconds: float) -> None:
    with SampleStore.open(postgres_url) as store, SampleStore.open(postgres_url, busy_timeout=seconds) as other:
        store.run("run").record_train(0, [[Sample()]])
        with store._handle.writing("hold") as connection:
            connection.execute(text("LOCK TABLE rollouts IN EXCLUSIVE MODE"))
            with pytest.raises(StoreBusyError):
                other.run("run").record_train(1, [[Sample()]])
