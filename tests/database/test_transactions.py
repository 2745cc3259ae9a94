"""Transactions and the errors that come out of them (cases H1, H9)."""

from __future__ import annotations

import errno
import pickle
import threading
import time
import traceback
from pathlib import Path

import pytest
from sqlalchemy import text

from slime_store.config import StoreConfig
from slime_store.database import read, schema_change, write
from slime_store.database.failures import translate
from slime_store.errors import (
    DamagedStoreError,
    DatabaseError,
    ReadOnlyStoreError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    TransactionAbortedError,
)
from tests.database.conftest import MakeEngine, insert


def test_a_transaction_commits_when_its_body_ends_and_rolls_back_when_it_raises(
    make_store: MakeEngine, store_url: str
) -> None:
    engine = make_store(store_url)
    with write(engine) as connection:
        connection.execute(text("INSERT INTO t VALUES (1, 'kept')"))
    with pytest.raises(RuntimeError), write(engine) as connection:
        connection.execute(text("INSERT INTO t VALUES (2, 'lost')"))
        raise RuntimeError
    with read(engine) as connection:
        assert connection.execute(text("SELECT * FROM t")).fetchall() == [(1, "kept")]


def test_table_definitions_roll_back_too(make_store: MakeEngine, store_url: str) -> None:
    engine = make_store(store_url)
    with pytest.raises(RuntimeError), write(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE u (a INTEGER)")
        raise RuntimeError
    with pytest.raises(DatabaseError, match="u"), read(engine) as connection:
        connection.exec_driver_sql("SELECT * FROM u")


def test_a_read_transaction_sees_one_state(make_store: MakeEngine, store_url: str) -> None:
    engine = make_store(store_url)
    insert(engine, 1)
    with read(engine) as connection:
        first = connection.scalar(text("SELECT count(*) FROM t"))
        insert(engine, 2)
        assert connection.scalar(text("SELECT count(*) FROM t")) == first == 1


def test_h1_a_writer_that_reads_first_waits_for_its_turn(make_store: MakeEngine, store_url: str) -> None:
    engine = make_store(store_url)
    insert(engine, 0)
    errors: list[BaseException] = []

    def add_next() -> None:
        try:
            for _ in range(10):
                with write(engine) as connection:
                    if engine.dialect.name == "postgresql":
                        connection.exec_driver_sql("LOCK TABLE t IN EXCLUSIVE MODE")
                    largest = connection.scalar(text("SELECT max(a) FROM t"))
                    time.sleep(0.001)
                    connection.execute(text("INSERT INTO t VALUES (:a, '')"), {"a": largest + 1})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=add_next) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with read(engine) as connection:
        assert connection.scalar(text("SELECT max(a) FROM t")) == 40


def test_h1_a_writer_that_waits_too_long_fails_with_a_busy_error_and_the_store_goes_on(
    make_store: MakeEngine, make_engine: MakeEngine, store_url: str
) -> None:
    engine = make_store(store_url)
    hasty = make_engine(store_url, busy_timeout=0.2)
    with write(engine) as connection:
        connection.execute(text("INSERT INTO t VALUES (1, '')"))
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        started = time.monotonic()
        with pytest.raises(StoreBusyError):
            insert(hasty, 2)
        assert 0.15 < time.monotonic() - started < 5
    insert(hasty, 2)


def test_a_read_only_store_refuses_to_write(make_store: MakeEngine, make_engine: MakeEngine, store_url: str) -> None:
    make_store(store_url)
    engine = make_engine(store_url, read_only=True)
    with pytest.raises(ReadOnlyStoreError), write(engine):
        pass
    with pytest.raises(ReadOnlyStoreError), schema_change(engine):
        pass
    with pytest.raises(ReadOnlyStoreError), read(engine) as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1, '')")


def test_h9_a_full_disk_is_a_typed_error_and_later_space_is_used(make_store: MakeEngine, sqlite_url: str) -> None:
    engine = make_store(sqlite_url)
    with read(engine) as connection:  # the limit is the connection's, and the pool hands out this one again
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StoreFullError), write(engine) as connection:
        connection.execute(text("INSERT INTO t VALUES (1, :b)"), {"b": "x" * 200_000})
    with read(engine) as connection:
        assert connection.scalar(text("SELECT count(*) FROM t")) == 0
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    insert(engine, 1)


def test_h9_a_full_disk_under_a_side_file_is_the_same_error(make_store: MakeEngine, sqlite_url: str) -> None:
    engine = make_store(sqlite_url)
    with pytest.raises(StoreFullError, match="No space left"), write(engine):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DatabaseError, match="no"), write(engine):
        raise PermissionError(errno.EACCES, "no")


def test_errors_show_neither_password_nor_parameters_and_keep_their_cause(
    make_store: MakeEngine, store_url: str
) -> None:
    engine = make_store(store_url)
    with pytest.raises(DatabaseError) as caught, write(engine) as connection:
        connection.execute(text("INSERT INTO nowhere VALUES (:b)"), {"b": "secret sample text"})
    assert "nowhere" in str(caught.value)
    assert caught.value.__cause__ is not None
    trace = "".join(traceback.format_exception(caught.value))
    for shown in (str(caught.value), repr(caught.value), caught.value.url, trace.replace('{"b": "secret', "")):
        assert "p@ss" not in shown and "p%40ss" not in shown and "secret" not in shown
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_server_that_is_not_there_is_a_database_error_without_the_password(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    engine = make_engine(f"postgresql://someone:hidden-word@/db?host={tmp_path}")
    with pytest.raises(DatabaseError) as caught, read(engine):
        pass
    assert "hidden-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        ("53100", StoreFullError),
        ("55P03", StoreBusyError),
        ("40001", TransactionAbortedError),
        ("40P01", TransactionAbortedError),
        ("XX001", DamagedStoreError),
        ("22003", DatabaseError),
    ],
)
def test_postgresql_states_become_our_errors(sqlstate: str, kind: type[StoreError]) -> None:
    class DriverError(Exception):
        pass

    error = DriverError("no hidden-word\nDETAIL: more")
    error.sqlstate = sqlstate  # type: ignore[attr-defined]
    config = StoreConfig.parse("postgresql://someone:hidden-word@host/db")
    translated = translate(error, config)
    assert type(translated) is kind
    assert str(translated).count("***") == 2 and "DETAIL" not in str(translated)


def test_a_reason_shows_no_secret_of_the_query() -> None:
    config = StoreConfig.parse("postgresql://host/db?password=hidden-word&sslpassword=hidden")
    translated = translate(Exception("neither hidden-word nor hidden"), config)
    assert str(translated) == "postgresql+psycopg://host/db?password=***&sslpassword=***: neither *** nor ***"
