"""The tests' own server goes away with them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.services.postgres import PostgresServer

pytestmark = pytest.mark.postgresql

START = """
from tests.services.postgres import PostgresServer
import time
with PostgresServer() as server:
    print(server.directory, flush=True)
    time.sleep(60)
"""


def test_a_server_ends_when_its_test_process_is_killed(postgres_server: PostgresServer) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    directory = Path(process.stdout.readline().strip())
    pid = int((directory / "data" / "postmaster.pid").read_text().splitlines()[0])
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not directory.exists()
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"  # ended, and perhaps not collected by init yet


@pytest.mark.usefixtures("postgres_server")  # skips where there is none
def test_a_crashed_server_comes_back_with_what_was_committed() -> None:
    import psycopg

    with PostgresServer(durable=True) as server, server.database() as url:
        plain = url.replace("+psycopg", "")
        with psycopg.connect(plain) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        server.stop(signal.SIGQUIT)
        server.start()
        with psycopg.connect(plain) as connection:
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]
