"""A server that tests may stop, kill and start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.postgres import PostgresServer


@pytest.fixture
def durable_server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server of this test's own, which keeps what it has committed when it is killed."""
    assert postgres_server.process is not None
    with PostgresServer(durable=True) as own:
        yield own
