"""``slime-store`` with a PostgreSQL that cannot be used: one line, exit code 5, and the password nowhere."""

from __future__ import annotations

import json
import socketserver
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from slime_store import SampleStore
from slime_store.errors import ConnectionFailedError
from slime_store.store.upkeep import store_status
from tests.services.commands import invoke
from tests.services.postgres import PASSWORD, PostgresServer

pytestmark = pytest.mark.postgresql

ANSWERS = {
    "starting up": ("57P03", "the database system is starting up"),
    "shutting down": ("57P03", "the database system is shutting down"),
    "out of connections": ("53300", "sorry, too many clients already"),
}


class _Refusing(socketserver.BaseRequestHandler):
    """Answers every client as PostgreSQL does that takes none: its error, before any password."""

    def handle(self) -> None:
        code, message = self.server.answer  # type: ignore[attr-defined]
        while len(head := self.request.recv(8)) == 8:
            length, version = struct.unpack("!II", head)
            self.request.recv(length - 8) if length > 8 else b""
            if version in (80877103, 80877104):  # may it be encrypted?
                self.request.sendall(b"N")
                continue
            fields = b"".join(
                f"{name}{text}\0".encode()
                for name, text in zip("SVCM", ("FATAL", "FATAL", code, message), strict=False)
            )
            self.request.sendall(b"E" + struct.pack("!I", len(fields) + 5) + fields + b"\0")
            return


@pytest.fixture
def refusing() -> Iterator[Callable[[str], str]]:
    """Give the URL of a server that refuses in one of the ways of ``ANSWERS``."""
    servers = []

    def serve(how: str) -> str:
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Refusing)
        server.answer = ANSWERS[how]  # type: ignore[attr-defined]
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = make_url("postgresql+psycopg://slime@127.0.0.1/db").set(password=PASSWORD, port=server.server_address[1])
        return url.render_as_string(hide_password=False)

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def _without_connections(server: PostgresServer, url: str) -> str:
    """Return the URL of a role that has used up its connections."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS crowded")
        connection.execute(f"CREATE ROLE crowded LOGIN CONNECTION LIMIT 0 PASSWORD '{PASSWORD}'".encode())
    return make_url(url).set(username="crowded").render_as_string(hide_password=False)


def _url(how: str, server: PostgresServer, url: str, refusing: Callable[[str], str]) -> str:
    address = make_url(url)
    changed = {
        "no server": lambda: address.set(host="127.0.0.1", port=1, query={}),
        "no socket": lambda: address.set(query={"host": "/nowhere"}),
        "wrong host name": lambda: address.set(host="no-such-host.invalid", query={}),
        "wrong password": lambda: address.set(password="wrong p@ss%2F"),
        "wrong user": lambda: address.set(username="nobody_here"),
        "missing database": lambda: address.set(database="not_there"),
        "password in the query": lambda: address.set(
            password=None, query={**address.query, "password": "wrong p@ss%2F"}
        ),
    }
    if how in changed:
        return changed[how]().render_as_string(hide_password=False)
    return _without_connections(server, url) if how == "role without connections" else refusing(how)


@pytest.mark.parametrize(
    "how",
    [
        "no server",
        "no socket",
        "wrong host name",
        "wrong password",
        "wrong user",
        "missing database",
        "password in the query",
        "role without connections",
        *ANSWERS,
    ],
)
def test_a_server_that_cannot_be_used_is_said_in_one_line(
    how: str, postgres_server: PostgresServer, postgres_url: str, refusing: Callable[[str], str], tmp_path: Path
) -> None:
    url = _url(how, postgres_server, postgres_url, refusing)
    status = store_status(url)
    assert status.state == "unreachable" and status.detail
    for form in ("table", "json", "csv"):
        done = invoke("--store", url, "db", "status", "--format", form)
        assert done.exit_code == 5 and done.stderr == "" and "unreachable" in done.stdout, done.output
        assert "Traceback" not in done.stdout and "p@ss" not in done.stdout and PASSWORD not in done.stdout
    (row,) = json.loads(invoke("--store", url, "db", "status", "--format", "json").stdout)
    assert (row["state"], row["revision"], row["n_runs"]) == ("unreachable", None, None)
    for words in (
        ["run", "list"],
        ["db", "verify"],
        ["db", "verify", "--fix"],
        ["db", "upgrade"],
        ["db", "backup", str(tmp_path / "b.db")],
        ["db", "copy", str(tmp_path / "c.db")],
        ["db", "prune"],
    ):
        done = invoke("--store", url, *words)
        assert done.exit_code == 5 and done.stdout == "", (words, done.output)
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
        assert "p@ss" not in done.stderr and PASSWORD not in done.stderr
    with pytest.raises(ConnectionFailedError):
        SampleStore.open(url)
    assert list(tmp_path.iterdir()) == []
