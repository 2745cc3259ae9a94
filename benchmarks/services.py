"""A PostgreSQL server for the benchmarks: the one of the tests, but durable and with PostgreSQL's own settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.postgres import MISSING, PostgresServer, server_programs


@contextmanager
def postgres_url() -> Iterator[str | None]:
    """Give the URL of an empty database on a private server, or None where PostgreSQL is not installed."""
    if server_programs() is None:
        print(f"!! PostgreSQL is NOT measured: {MISSING} !!")
        yield None
        return
    server = PostgresServer(durable=True)
    for name in ("shared_buffers", "autovacuum"):  # the tests save memory and time
        del server.settings[name]
    with server, server.database() as url:
        yield url
