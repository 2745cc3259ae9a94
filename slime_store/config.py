"""Where a store is: a path or URL, read once and kept with its real secrets out of sight."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from slime_store.errors import InvalidUrlError

if TYPE_CHECKING:
    from sqlalchemy import URL

BUSY_TIMEOUT_SECONDS = 60.0
"""How long a writer waits for another writer's transaction before it fails."""

_SQLITE = "sqlite:///"
_NOT_UNICODE = "it has bytes that are no UTF-8"
_NOT_OF_LIBPQ = frozenset({"plugin", "autocommit", "context", "cursor_factory", "prepare_threshold", "row_factory"})
"""Options that SQLAlchemy and psycopg take for themselves: by the first, SQLAlchemy runs a plug-in of that name."""
_MASK = "***"
_SECRET_OPTION = re.compile(r"pass|secret|token|key|credential|conninfo|dsn", re.IGNORECASE)
"""Options of a URL's query that hold a secret, or the place of one: password, sslpassword, passfile, sslkey ..."""

_LIKE_A_URL = re.compile(r"(postgres(ql)?|sqlite)(\+\w+)?(:|//)", re.IGNORECASE)
_LIKE_CREDENTIALS = re.compile(
    r"(?![./~])(.*[^\w/])?\w*passw(or)?d\s*=.*|([\w+]*//|(?![./~]))[^/\s@:]*:[^/\s@]+@[^/\s]+(/\S*)?",
    re.IGNORECASE | re.DOTALL,
)
"""A server's address in other forms than a URL: whatever has a ``password=``, and ``user:password@host/database``.

What begins like a path is one, and a match takes time in proportion to the text.
"""

_SQLITE_URL = re.compile(r"sqlite(\+pysqlite)?://(/(?P<path>.*))?", re.DOTALL)


@dataclass(frozen=True, repr=False)
class StoreConfig:
    """One store's address and how it is opened.

    Attributes:
        url: the full URL, secrets included, never printed; for SQLite ``sqlite:///`` and the absolute path.
        read_only: never create, migrate or write.
        busy_timeout: seconds a writer waits for another writer.
        side_files: whether large payloads go to files beside an SQLite file; else they go into it.
    """

    url: str
    read_only: bool = False
    busy_timeout: float = BUSY_TIMEOUT_SECONDS
    side_files: bool = True

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
        timeout = BUSY_TIMEOUT_SECONDS if busy_timeout is None else busy_timeout
        return cls(_read_target(target), read_only, timeout)

    @property
    def sqlalchemy_url(self) -> URL:
        """The URL as SQLAlchemy's object."""
        from sqlalchemy import URL, make_url

        if self.is_sqlite:  # never parsed again: a path may hold any character
            return URL.create("sqlite", database=self.url.removeprefix(_SQLITE) or None)
        return make_url(self.url)

    @property
    def place(self) -> tuple[str, ...]:
        """Server, database and schema: the same for every URL that leads there by the same names."""
        url = self.sqlalchemy_url
        query = url.normalized_query
        host, port = url.host or ",".join(query.get("host", ())), url.port or ",".join(query.get("port", ("5432",)))
        return host.lower(), str(port), url.database or "", *query.get("schema", ("slime_store",))

    def at(self, path: Path) -> StoreConfig:
        """Return the same settings for another SQLite file."""
        return replace(self, url=f"{_SQLITE}{path}")

    @property
    def display_url(self) -> str:
        """The URL for people: passwords and the like are ``***``, an SQLite store is its path."""
        if self.is_sqlite:
            return self.url.removeprefix(_SQLITE) or "sqlite:// (in memory)"
        return masked(self.sqlalchemy_url)

    def without_secrets(self, text: str) -> str:
        """Return a text, such as a driver's message, with every secret of the URL masked."""
        url = self.sqlalchemy_url
        secrets = {str(url.password)} if url.password else set()
        secrets |= {value for values in secret_options(url).values() for value in values}
        spellings = {spell(secret) for secret in secrets for spell in (str, quote, quote_plus)} - {""}
        for spelling in sorted(spellings, key=len, reverse=True):  # no secret is cut by one that is part of it
            text = text.replace(spelling, _MASK)
        return text

    @property
    def is_sqlite(self) -> bool:
        """True for the embedded database."""
        return self.url.startswith(_SQLITE)

    @property
    def path(self) -> Path | None:
        """The SQLite file, or None for PostgreSQL and in-memory stores."""
        database = self.url.removeprefix(_SQLITE) if self.is_sqlite else ""
        return Path(database) if database else None

    @property
    def is_memory(self) -> bool:
        """True for an in-memory SQLite store."""
        return self.is_sqlite and self.path is None

    def __repr__(self) -> str:
        return f"StoreConfig({self.display_url!r}, read_only={self.read_only})"


def secret_options(url: URL) -> dict[str, tuple[str, ...]]:
    """Return the options of a URL's query that must not be shown, with their values."""
    return {name: tuple(values) for name, values in url.normalized_query.items() if _SECRET_OPTION.search(name)}


def masked(url: URL) -> str:
    """Return a URL as text without its password and without the secrets of its query: the one way to print it."""
    shown = url.update_query_dict(dict.fromkeys(secret_options(url), _MASK))
    return shown.render_as_string(hide_password=True).replace(quote_plus(_MASK), _MASK)


def _read_target(target: str | os.PathLike[str] | URL) -> str:
    """Return the full URL of what the caller named."""
    from sqlalchemy import URL, make_url
    from sqlalchemy.exc import ArgumentError

    if isinstance(target, URL):
        _refuse_unreadable(target)
        if target.get_backend_name() != "sqlite":
            return _postgresql(target)
        if target.get_driver_name() not in ("pysqlite", "sqlite") or target.query:
            raise InvalidUrlError(masked(target), "SQLite is reached by Python's own driver, without options")
        return _sqlite(target.database or "")
    text = os.fspath(target)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidUrlError(_unread(text) if isinstance(text, str) else repr(text), "it is empty or not text")
    if "://" in text and not _is_unicode(text):
        raise InvalidUrlError("what was given", _NOT_UNICODE)
    match = _SQLITE_URL.fullmatch(text)
    if match is not None:
        path = match["path"] or ""
        if "?" in path:
            raise InvalidUrlError(
                masked(make_url(text)), "SQLite URL options are not supported; give a path with ? in it as a path"
            )
        return _sqlite(path)
    if "://" not in text:
        if _LIKE_A_URL.match(text):
            shown = f"{re.split('[:/]', text)[0]}..."  # what follows may be a password
            raise InvalidUrlError(shown, "a colon and two slashes come after the name; a file of such a name is ./NAME")
        if isinstance(target, str) and _is_like_credentials(text):
            reason = "a server's address is postgresql+psycopg://USER:PASSWORD@HOST/DATABASE; a file is ./NAME"
            raise InvalidUrlError("what was given", reason)
        return _sqlite(text)
    if text.count("@") > 1:  # the text up to the last one may be the password
        reason = "it has more than one @; but for the one before the host @ is %40, and / in a password is %2F"
        raise InvalidUrlError(_unread(text), reason)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise InvalidUrlError(_unread(text), "the URL cannot be read") from None
    _refuse_unreadable(url)
    return _postgresql(url)


def _refuse_unreadable(url: URL) -> None:
    """Refuse a URL with text that no server can be told; the errors of Python's encoders would hold the password."""
    try:
        is_unicode = _is_unicode(url.render_as_string(hide_password=False))
    except UnicodeError:
        is_unicode = False
    if not is_unicode:
        raise InvalidUrlError("what was given", _NOT_UNICODE)
    hosts = [url.host or "", *url.normalized_query.get("host", ())]
    try:
        for host in ",".join(hosts).split(","):
            if not host.startswith(("/", "@")):  # a socket's folder may be called anything
                host.encode("idna")
    except UnicodeError:
        raise InvalidUrlError(masked(url), "its host is no name that a host can have") from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeError:
        return False
    return True


def refuse_address(target: object) -> None:
    """Refuse a server's address where a file or a folder is asked for: its password would be the name, and shown.

    Raises:
        InvalidUrlError: it is like one, and no file of that name is there. A file of such a name is ``./NAME``.
    """
    if not isinstance(target, str) or target.startswith("./") or os.path.lexists(target):
        return
    is_path = target.startswith("/")  # but for //USER:PASSWORD@HOST
    if _is_like_credentials(target) or (not is_path and ("://" in target or _LIKE_A_URL.match(target))):
        raise InvalidUrlError("what was given", "a file or a folder is asked for; one of such a name is ./NAME")


def _is_like_credentials(text: str) -> bool:
    return _LIKE_CREDENTIALS.fullmatch(text) is not None and not os.path.lexists(text)


def _unread(text: str) -> str:
    """Return what can be shown of a text that nothing is known of."""
    scheme, separator, _ = text.partition("://")
    return f"{scheme}://..." if separator else text


def _sqlite(database: str) -> str:
    if database in ("", ":memory:"):
        return _SQLITE
    try:
        os.fsencode(database).decode()
    except UnicodeError:
        raise InvalidUrlError(repr(database), "the path is not text that a file name can hold") from None
    try:
        return f"{_SQLITE}{Path(database).expanduser().absolute()}"
    except RuntimeError as error:  # the home of a user who is not there
        raise InvalidUrlError(database, str(error)) from None


def _postgresql(url: URL) -> str:
    if "@" in (url.host or ""):
        raise InvalidUrlError(f"{url.drivername}://...", "its host has an @ in it, as if it was the end of a password")
    backend = url.drivername.partition("+")[0]
    if backend not in ("postgresql", "postgres"):
        raise InvalidUrlError(masked(url), f"{backend} is not supported")
    if url.drivername not in (backend, "postgresql+psycopg"):
        raise InvalidUrlError(masked(url), "PostgreSQL is reached by psycopg 3 only")
    for option in sorted(_NOT_OF_LIBPQ & url.query.keys()):
        raise InvalidUrlError(masked(url), f"{option} is no option of a server's address")
    return url.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
