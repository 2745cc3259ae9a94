"""Where a store is: a path or URL, read once and kept with its real password out of sight."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slime_store.errors import InvalidUrlError

if TYPE_CHECKING:
    from sqlalchemy import URL

BUSY_TIMEOUT_SECONDS = 60.0
"""How long a writer waits for another writer's transaction before it fails."""


@dataclass(frozen=True, repr=False)
class StoreConfig:
    """One store's address and how it is opened.

    Attributes:
        url: the full URL, password included; never printed.
        read_only: never create, migrate or write.
        busy_timeout: seconds a writer waits for another writer.
    """

    url: str
    read_only: bool = False
    busy_timeout: float = BUSY_TIMEOUT_SECONDS

    @classmethod
    def parse(
        cls, target: str | os.PathLike[str] | URL, *, read_only: bool = False, busy_timeout: float | None = None
    ) -> StoreConfig:
        """Read a path, a ``sqlite:///`` or ``postgresql+psycopg://`` URL, or an SQLAlchemy ``URL``.

        A bare path means SQLite; ``":memory:"`` and ``"sqlite://"`` an in-memory store. A relative path is made
        absolute now, so that a later ``chdir`` or another process finds the same file.

        Raises:
            InvalidUrlError: the text is no path and no URL of a supported database.
        """
        from sqlalchemy import URL, make_url
        from sqlalchemy.exc import ArgumentError

        if isinstance(target, URL):
            url = target
        else:
            text = os.fspath(target)
            if not isinstance(text, str) or not text or "\0" in text:
                raise InvalidUrlError(repr(target), "it is empty or not text")
            if text == ":memory:":
                text = "sqlite://"
            if "://" in text:
                try:
                    url = make_url(text)
                except (ArgumentError, ValueError):
                    raise InvalidUrlError(text.split("://")[0] + "://...", "the URL cannot be read") from None
            else:
                url = URL.create("sqlite", database=text)
        backend = url.get_backend_name()
        if backend == "postgresql":
            if url.drivername in ("postgresql", "postgres"):
                url = url.set(drivername="postgresql+psycopg")
            if url.get_driver_name() != "psycopg":
                raise InvalidUrlError(url.render_as_string(), "PostgreSQL is reached by psycopg 3 only")
        elif backend == "sqlite":
            if url.get_driver_name() not in ("pysqlite", "sqlite"):
                raise InvalidUrlError(url.render_as_string(), "SQLite is reached by Python's own driver only")
            if url.query:
                raise InvalidUrlError(url.render_as_string(), "SQLite URL options are not supported")
            if url.database in ("", ":memory:"):
                url = url.set(database=None)
            elif url.database is not None:
                url = url.set(database=str(Path(url.database).expanduser().absolute()))
        else:
            raise InvalidUrlError(url.render_as_string(), f"{backend} is not supported")
        return cls(
            url.render_as_string(hide_password=False),
            read_only,
            BUSY_TIMEOUT_SECONDS if busy_timeout is None else busy_timeout,
        )

    @property
    def sqlalchemy_url(self) -> URL:
        """The URL as SQLAlchemy's object."""
        from sqlalchemy import make_url

        return make_url(self.url)

    @property
    def display_url(self) -> str:
        """The URL for people: the password is ``***``, an SQLite store is its path."""
        url = self.sqlalchemy_url
        if self.is_sqlite:
            return url.database or "sqlite:// (in memory)"
        return url.render_as_string(hide_password=True)

    @property
    def is_sqlite(self) -> bool:
        """True for the embedded database."""
        return self.url.startswith("sqlite")

    @property
    def path(self) -> Path | None:
        """The SQLite file, or None for PostgreSQL and in-memory stores."""
        database = self.sqlalchemy_url.database if self.is_sqlite else None
        return Path(database) if database else None

    @property
    def is_memory(self) -> bool:
        """True for an in-memory SQLite store."""
        return self.is_sqlite and self.path is None

    def __repr__(self) -> str:
        return f"StoreConfig({self.display_url!r}, read_only={self.read_only})"
