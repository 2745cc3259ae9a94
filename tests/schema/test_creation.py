"""New stores: created whole, once, by any number of processes (case H2)."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event, inspect, text

from slime_store import Sample, SampleStore
from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, draft_of, forks, read, write
from slime_store.database.filesystem import NetworkFileSystemWarning
from slime_store.errors import InvalidUrlError, StoreNotFoundError
from slime_store.models import Base
from slime_store.schema import HEAD, VERSION_TABLE, ensure_schema, migrator, stored_revision

OpenStore = Callable[..., Engine]


def test_a_new_store_has_all_tables_and_the_newest_revision(open_store: OpenStore, store_url: str) -> None:
    engine = open_store(store_url)
    assert stored_revision(engine) == HEAD
    with read(engine) as connection:
        assert set(inspect(connection).get_table_names()) == {*Base.metadata.tables, VERSION_TABLE}


def test_an_in_memory_store_has_them_too(open_store: OpenStore) -> None:
    assert stored_revision(open_store("sqlite://")) == HEAD


def test_opening_again_costs_three_queries_at_most_and_does_not_import_alembic(
    open_store: OpenStore, store_url: str
) -> None:
    open_store(store_url).dispose()
    statements: list[str] = []
    config = StoreConfig.parse(store_url)
    engine = create_store_engine(config)
    event.listen(engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    ensure_schema(engine, config)
    engine.dispose()
    queries = [s for s in statements if "BEGIN" not in s]
    assert queries[-1].startswith("SELECT version_num, ") and VERSION_TABLE in queries[-1]
    assert len(queries) == (3 if config.is_sqlite else 1)  # in an SQLite file somebody may have put a trigger
    code = (
        "import sys; from slime_store.config import StoreConfig; from slime_store.database import create_store_engine\n"
        "from slime_store.schema import ensure_schema\n"
        "config = StoreConfig.parse(sys.argv[1]); ensure_schema(create_store_engine(config), config)\n"
        "print(sorted({'alembic', 'torch', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, store_url], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_reader_never_creates_a_store(open_store: OpenStore, store_url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        open_store(store_url, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_named(open_store: OpenStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidUrlError, match="nowhere"):
        open_store(tmp_path / "nowhere" / "store.db")


def test_only_the_store_is_left_in_its_directory(open_store: OpenStore, tmp_path: Path) -> None:
    open_store(tmp_path / "store.db").dispose()
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]


def test_a_file_system_without_links_works_too(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_arguments: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_link)
    assert stored_revision(open_store(tmp_path / "store.db")) == HEAD


def test_h2_without_links_a_new_store_never_replaces_one_that_was_just_made(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, prompts = os.rename, "INSERT INTO prompts (digest, text) VALUES (:digest, '')"

    def no_link(*_arguments: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def slow(source: Path, target: Path) -> None:
        time.sleep(0.1)  # as long as it takes another one to make a store there, to write to it and to close it
        real(source, target)

    def work(number: int) -> None:
        engine = open_store(tmp_path / "store.db")
        with write(engine) as connection:
            connection.execute(text(prompts), {"digest": bytes([number])})
        engine.dispose()

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(os, "rename", slow)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with read(open_store(tmp_path / "store.db")) as connection:
        assert connection.scalar(text("SELECT count(*) FROM prompts")) == 3


def open_and_write(url: str, number: int, barrier: Barrier) -> None:
    import alembic.command  # noqa: F401  all arrive at the database together

    config = StoreConfig.parse(url)
    engine = create_store_engine(config)
    barrier.wait(60)
    ensure_schema(engine, config)
    with write(engine) as connection:
        values = {"digest": bytes([number]), "text": str(number)}
        connection.execute(text("INSERT INTO prompts (digest, text) VALUES (:digest, :text)"), values)
    engine.dispose()


@pytest.mark.parametrize("round_number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_h2_sixteen_processes_open_a_new_store_at_once(store_url: str, round_number: int) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["slime_store.schema", "alembic.command", __name__])
    barrier = context.Barrier(16)
    processes = [context.Process(target=open_and_write, args=(store_url, number, barrier)) for number in range(16)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 16
    engine = create_store_engine(StoreConfig.parse(store_url))
    with read(engine) as connection:
        assert connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).fetchall() == [(HEAD,)]
        assert connection.scalar(text("SELECT count(*) FROM prompts")) == 16
    engine.dispose()


def test_h2_threads_of_one_process_open_new_stores_at_once(open_store: OpenStore, tmp_path: Path) -> None:
    failures: list[BaseException] = []
    barrier = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            barrier.wait()
            open_store(tmp_path / f"{number % 3}.db")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.mark.slow
def test_h8_a_process_killed_while_it_creates_a_store_leaves_none_or_a_whole_one(
    open_store: OpenStore, tmp_path: Path
) -> None:
    code = (
        "import sys, alembic.command; from slime_store.config import StoreConfig\n"
        "from slime_store.database import create_store_engine; from slime_store.schema import ensure_schema\n"
        "print('ready', flush=True)\n"
        "for n in range(1000):\n"
        "    config = StoreConfig.parse(f'{sys.argv[1]}/{n}.db'); ensure_schema(create_store_engine(config), config)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    while not (tmp_path / "0.db").exists() and process.poll() is None:  # however busy the machine is
        time.sleep(0.01)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    names = sorted((path for path in tmp_path.iterdir() if path.suffix == ".db"), key=lambda path: int(path.stem))
    assert names
    for path in names:
        assert stored_revision(open_store(path)) == HEAD
    open_store(tmp_path / f"{len(names)}.db")  # what was being created can be created now


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_h6_a_child_creates_a_store_though_its_parent_was_forked_amid_creating_one(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, run, inside, forked = os.getpid(), migrator.run_alembic, threading.Event(), threading.Event()

    def slow_run(connection: Connection) -> None:
        inside.set()
        assert os.getpid() != parent or forked.wait(60)
        run(connection)

    monkeypatch.setattr(forks, "FORK_WAIT_SECONDS", 0.1)
    monkeypatch.setattr(migrator, "run_alembic", slow_run)
    thread = threading.Thread(target=open_store, args=(tmp_path / "parent.db",))
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # not to hang
        open_store(tmp_path / "child.db")
        os._exit(0)
    forked.set()
    assert os.waitpid(pid, 0)[1] == 0
    thread.join()
    assert stored_revision(open_store(tmp_path / "child.db")) == HEAD
    assert stored_revision(open_store(tmp_path / "parent.db")) == HEAD


def test_h3_a_store_that_came_to_a_network_file_system_leaves_its_write_ahead_log_when_it_is_opened(
    open_store: OpenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    open_store(path).dispose()
    monkeypatch.setattr("slime_store.database.filesystem.filesystem_type", lambda _path: "nfs4")
    with pytest.warns(NetworkFileSystemWarning, match="write-ahead-log mode"):
        open_store(path, read_only=True).dispose()
    with pytest.warns(NetworkFileSystemWarning, match="rollback journal"):
        engine = open_store(path)
    with read(engine) as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "delete"


def test_a_store_whose_maker_was_killed_has_one_name_again_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SampleStore.open(path).close()
    os.link(path, draft_of(path))
    with SampleStore.open(path, read_only=True):
        pass
    assert path.stat().st_nlink == 2
    with SampleStore.open(path) as store:
        store.run("run").record_train(0, [[Sample()]])
    assert path.stat().st_nlink == 1
