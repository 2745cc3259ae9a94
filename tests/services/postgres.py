"""A private PostgreSQL server for the tests: own data, own socket, nothing on the network, gone afterwards."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REQUIRE_VARIABLE = "SLIME_STORE_REQUIRE_POSTGRES"
USER = "slime"
PASSWORD = "p@ss%2F:/?#x"  # as unkind to URLs as a password can be
MISSING = "no PostgreSQL server programs (initdb, postgres) are installed"

_START_SECONDS = 60.0

# Reads until the test process is gone, however it went, then ends the server and removes its files.
_WATCHDOG = """
cat >/dev/null
kill -QUIT "$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)" 2>/dev/null && sleep 1
rm -rf "$1"
"""


def server_programs() -> Path | None:
    """Return the directory of ``initdb`` and ``postgres``: the newest installed, or the one that PATH finds."""
    found = [Path(path).parent for path in [shutil.which("initdb")] if path]
    for pattern in (
        "usr/lib/postgresql/*/bin/initdb",
        "usr/pgsql-*/bin/initdb",
        "opt/homebrew/opt/postgresql*/bin/initdb",
    ):
        found += sorted((path.parent for path in Path("/").glob(pattern)), key=_version, reverse=True)
    return next((directory for directory in found if (directory / "postgres").exists()), None)


def is_required() -> bool:
    """Tell whether a missing server is an error (CI)."""
    return os.environ.get(REQUIRE_VARIABLE, "") not in ("", "0")


_IS_UNTOUCHED = """
SELECT NOT (
    EXISTS (SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace)
    OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = 'public'::regnamespace)
    OR EXISTS (SELECT FROM pg_type WHERE typnamespace = 'public'::regnamespace)
    OR EXISTS (SELECT FROM pg_db_role_setting WHERE setdatabase = d.oid)
    OR EXISTS (SELECT FROM pg_largeobject_metadata)
    OR EXISTS (SELECT FROM pg_event_trigger)
    OR EXISTS (SELECT FROM pg_prepared_xacts)
    OR EXISTS (SELECT FROM pg_extension WHERE extname <> 'plpgsql')
    OR EXISTS (SELECT FROM pg_default_acl)
    OR EXISTS (SELECT FROM pg_publication)
    OR (SELECT nspacl::text FROM pg_namespace WHERE nspname = 'public')
        IS DISTINCT FROM (SELECT initprivs::text FROM pg_init_privs WHERE objoid = 'public'::regnamespace
            AND classoid = 'pg_namespace'::regclass)
    OR d.datacl IS NOT NULL OR d.datconnlimit <> -1 OR NOT d.datallowconn
) FROM pg_database AS d WHERE datname = current_database()
"""


class PostgresServer:
    """One running server. Use as a context manager; ``durable=True`` keeps fsync on, for crash tests."""

    def __init__(self, *, durable: bool = False) -> None:
        programs = server_programs()
        if programs is None:
            raise RuntimeError(MISSING)
        self.programs = programs
        self.account = _unprivileged_account()
        self.directory = Path(tempfile.mkdtemp(prefix="slime-store-pg-"))
        self.settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "max_connections": "200",
        }
        self.settings |= {"shared_buffers": "32MB", "log_min_messages": "fatal", "autovacuum": "off"}
        if not durable:
            self.settings |= {"fsync": "off", "full_page_writes": "off"}
        self.process: subprocess.Popen[bytes] | None = None
        self.watchdog: subprocess.Popen[bytes] | None = None
        self._names = itertools.count(1)
        self._spare: list[str] = []

    def __enter__(self) -> PostgresServer:
        atexit.register(self.remove)
        self.watchdog = subprocess.Popen(
            ["sh", "-c", _WATCHDOG, "watchdog", str(self.directory)], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self._initialise()
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(self.programs / "postgres"), "-D", str(self.directory / "data"), *options]
        log = (self.directory / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._as_account()
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                with self._admin():
                    return
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    log_text = (self.directory / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL does not start: {error}\n{log_text}") from error
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT is PostgreSQL's fast shutdown, SIGQUIT its crash."""
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def remove(self) -> None:
        """Stop the server and delete everything it wrote."""
        atexit.unregister(self.remove)
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        if self.watchdog is not None:
            self.watchdog.communicate()
            self.watchdog = None

    def url(self, database: str, **options: str) -> str:
        """Return the URL of a database of this server, with its password."""
        from sqlalchemy import URL

        query = {"host": str(self.directory), **options}
        url = URL.create("postgresql+psycopg", USER, PASSWORD, database=database, query=query)
        return url.render_as_string(hide_password=False)

    @contextlib.contextmanager
    def database(self, encoding: str = "UTF8") -> Iterator[str]:
        """Give the URL of an empty database with a new name; afterwards it is gone, whoever is still connected.

        One that is as it was when its schemas are dropped is given another name and given again: that costs a fifth of
        making one.
        """
        name = f"test_{next(self._names)}"
        with self._admin() as admin:
            if encoding == "UTF8" and self._spare:
                admin.execute(f"ALTER DATABASE {self._spare.pop()} RENAME TO {name}")
            else:
                admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
        try:
            yield self.url(name)
        finally:
            if encoding == "UTF8" and self._is_emptied(name) and self._is_renamed(name):
                self._spare.append(f"spare_{name}")
            else:
                with self._admin() as admin:
                    admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _is_renamed(self, name: str) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.Error), self._admin() as admin:  # somebody may be connected again
            admin.execute(f"ALTER DATABASE {name} RENAME TO spare_{name}")
            return True
        return False

    def _is_emptied(self, name: str) -> bool:
        """Drop all schemas of a database; tell whether nothing else is left of whoever used it."""
        import psycopg

        with contextlib.suppress(psycopg.Error), self._admin(name) as admin:
            deadline = time.monotonic() + _START_SECONDS
            while admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall():
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.002)
            for (schema,) in admin.execute(
                "SELECT quote_ident(nspname) FROM pg_namespace"
                " WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'public')"
            ).fetchall():
                admin.execute(f"DROP SCHEMA {schema} CASCADE")
            return bool(admin.execute(_IS_UNTOUCHED).fetchone() == (True,))
        return False

    @contextlib.contextmanager
    def _admin(self, database: str = "postgres") -> Iterator[Any]:
        import psycopg

        with psycopg.connect(
            host=str(self.directory),
            user=USER,
            password=PASSWORD,
            dbname=database,
            autocommit=True,
            connect_timeout=10,
        ) as connection:
            yield connection

    def _initialise(self) -> None:
        password_file = self.directory / "password"
        password_file.write_text(PASSWORD)
        if self.account is not None:
            os.chown(self.directory, self.account.pw_uid, self.account.pw_gid)
            os.chown(password_file, self.account.pw_uid, self.account.pw_gid)
        command = [str(self.programs / "initdb"), "-D", str(self.directory / "data"), "-U", USER, "--no-sync"]
        # the newer method takes milliseconds of a processor for each of the suite's thousands of connections
        command += ["--auth=md5", f"--pwfile={password_file}", "--encoding=UTF8", "--locale=C"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **self._as_account())
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr}")

    def _as_account(self) -> dict[str, Any]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        options: dict[str, Any] = {"env": environment, "cwd": self.directory, "start_new_session": True}
        if self.account is not None:
            options |= {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        return options


def _unprivileged_account() -> pwd.struct_passwd | None:
    """Return whom the server runs as: PostgreSQL refuses root. None: ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("neither the account 'postgres' nor 'nobody' exists, and PostgreSQL does not run as root")


def _version(directory: Path) -> float:
    digits = "".join(c if c.isdigit() or c == "." else " " for c in str(directory)).split()
    return float(digits[0]) if digits else 0.0
