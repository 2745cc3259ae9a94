"""Brings a database to the schema of this version, or says why not."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

from slime_store.blobs import sync_directory
from slime_store.config import StoreConfig
from slime_store.database import (
    check_only_name,
    check_reading_name,
    create_store_engine,
    draft_of,
    engine_config,
    ensure_number,
    publish,
    read,
    refuse_others_files,
    remove_first_name,
    schema_change,
    settle_journal,
    tell_after_fork,
    translate_os_error,
)
from slime_store.errors import (
    DamagedStoreError,
    DatabaseError,
    ForeignDatabaseError,
    InvalidUrlError,
    NewerSchemaError,
    OutdatedSchemaError,
    StoreNotFoundError,
)
from slime_store.schema.inspection import check_path, explain_refused_file, newest_writer, refuse_foreign
from slime_store.schema.location import migrations_directory
from slime_store.schema.revisions import HEAD, REVISIONS, VERSION_TABLE, read_revision, stored_version
from slime_store.schema.strangers import strangers


class _Alembic:
    """Has the lock that upgrades take: Alembic's `op` and `context` are global to the process."""

    def __init__(self) -> None:
        self.after_fork()
        tell_after_fork(self)

    def after_fork(self) -> None:
        """Take a lock of one's own: the parent's may be held by a thread that is not here."""
        self.lock = threading.RLock()
        self.is_running = False

    @contextlib.contextmanager
    def running(self, display_url: str) -> Iterator[None]:
        """Refuse to begin, with the lock held, what this very thread is in the middle of.

        Raises:
            DatabaseError: a signal handler opens a store while the code that it interrupted makes or upgrades one.
        """
        if self.is_running:
            raise DatabaseError(display_url, "this thread was interrupted while it made or upgraded another store")
        self.is_running = True
        try:
            yield
        finally:
            self.is_running = False


_alembic = _Alembic()


def ensure_schema(engine: Engine, config: StoreConfig) -> int:
    """Make sure that the database has the schema of this version: create it, upgrade it, or refuse.

    Nothing is written before the checks have passed. A store that is up to date costs three small queries. Any number
    of processes may call this at once for the same new store. Returns the number of an SQLite store, which gets one
    unless it is read-only; 0: it has none.

    Raises:
        StoreNotFoundError: there is no store, and ``config.read_only``.
        OutdatedSchemaError: the schema is older, and ``config.read_only``.
        NewerSchemaError: the schema has a revision that is unknown here.
        ForeignDatabaseError: the file or database is another program's.
        DamagedStoreError: the file is damaged.
        InvalidUrlError: the path names a directory, or its directory does not exist.
        DatabaseError: a second name of the file stands in the way, or the database failed; the schema is as it was.
    """
    if config.path is not None:
        if config.path.exists():
            check_path(config, config.path)
            if config.read_only:
                check_reading_name(config.path, config.display_url)
            else:
                remove_first_name(config.path)
                check_only_name(config.path, config.display_url)
        elif config.read_only:
            raise StoreNotFoundError(config.display_url)
        else:
            create_file(config, config.path)
    try:
        if config.path is not None:
            _refuse_strangers(engine, config)
        revision, number = stored_version(engine)
    except DamagedStoreError as error:
        if config.path is None:
            raise
        raise explain_refused_file(config, config.path, error) from error.__cause__
    if revision == HEAD:
        settle_journal(engine)
        return number or ensure_number(engine)
    if revision is None:
        refuse_foreign(engine, VERSION_TABLE)
        if config.read_only:
            raise StoreNotFoundError(config.display_url)
    elif revision not in REVISIONS:
        raise NewerSchemaError(config.display_url, revision, newest_writer(engine))
    elif config.read_only:
        raise OutdatedSchemaError(config.display_url, revision)
    settle_journal(engine)
    upgrade(engine)
    return ensure_number(engine)


def _refuse_strangers(engine: Engine, config: StoreConfig) -> None:
    with read(engine) as connection:
        found = strangers(connection)
        if not found:
            return
        query = text("SELECT 1 FROM sqlite_master WHERE lower(name) = :name")
        is_ours = connection.execute(query, {"name": VERSION_TABLE}).scalar()
    if not is_ours:
        refuse_foreign(engine, VERSION_TABLE)
    raise ForeignDatabaseError(config.display_url, f"it has a {', a '.join(found)}, which slime_store never makes")


def upgrade(engine: Engine) -> None:
    """Upgrade to the newest revision in one transaction; the version is looked at again inside it."""
    with _alembic.lock, schema_change(engine) as connection:
        with connection.begin_nested():  # a missing version table must not end the transaction on PostgreSQL
            revision = _revision_or_none(connection)
        display_url = engine_config(engine).display_url
        if revision == HEAD:
            return  # another process was first
        if revision is not None and revision not in REVISIONS:
            raise NewerSchemaError(display_url, revision)
        before = count_rows(connection)
        with _alembic.running(display_url):
            run_alembic(connection)
        lost = lost_rows(before, count_rows(connection))
        if lost:
            raise DatabaseError(display_url, f"the upgrade would lose rows of {lost}")


def run_alembic(connection: Connection, revision: str = "head", directory: Path | None = None) -> None:
    """Run the migration scripts up to ``revision`` inside the connection's transaction.

    ``directory`` is where the scripts are, if not where the package has them.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(directory or migrations_directory()).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def count_rows(connection: Connection) -> dict[str, int]:
    """Return the number of rows of every table of ours but the version table."""
    quote = connection.dialect.identifier_preparer.quote
    names = [name for name in inspect(connection).get_table_names() if name != VERSION_TABLE]
    return {name: connection.exec_driver_sql(f"SELECT count(*) FROM {quote(name)}").scalar_one() for name in names}


def lost_rows(before: dict[str, int], after: dict[str, int]) -> str:
    """Say which tables have fewer rows than before; empty if none. A dropped table counts only if it held rows."""
    losses = {name: (n, after.get(name, 0)) for name, n in before.items() if after.get(name, 0) < n}
    return ", ".join(f"{name} ({n} -> {m})" for name, (n, m) in sorted(losses.items()))


def create_file(config: StoreConfig, path: Path) -> None:
    """Create the file of a new store, complete or not at all.

    It is made under another name in the same directory and given its own when it is finished: no process ever sees
    half a store, a crash leaves none behind, and of many processes the first one wins.
    """
    if not path.parent.is_dir():
        raise InvalidUrlError(config.display_url, f"the directory {path.parent} does not exist")
    for suffix in ("-wal", "-journal"):  # SQLite would replay it into the new store
        if os.path.lexists(f"{path}{suffix}"):
            detail = f"the file is gone, but its log {path.name}{suffix} is there; restore the file, or remove the log"
            raise DamagedStoreError(config.display_url, detail)
    refuse_others_files(path)
    draft = draft_of(path)
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        engine = create_store_engine(config.at(draft))
        try:
            upgrade(engine)
        finally:
            engine.dispose()
        with contextlib.suppress(FileExistsError):  # another process was first
            publish(draft, path)
            sync_directory(path.parent)
    except OSError as error:
        raise translate_os_error(error, config, "cannot create the file") from error
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{draft}{suffix}").unlink(missing_ok=True)


def _revision_or_none(connection: Connection) -> str | None:
    names = inspect(connection).get_table_names()
    return read_revision(connection) if VERSION_TABLE in names else None
