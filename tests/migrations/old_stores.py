"""Puts the committed store of an older schema where a test can open it, on either database."""

from __future__ import annotations

import sqlite3
import tarfile
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from slime_store.blobs import PART_BYTES
from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, schema_change
from slime_store.schema import VERSION_TABLE
from slime_store.schema.migrator import run_alembic

ASSETS = Path(__file__).parent / "assets"


def asset(revision: str) -> Path:
    """Return the archive of a revision's store; there is no other way to get one than to commit it."""
    path = ASSETS / f"schema-{revision}.tar.gz"
    assert path.is_file(), f"{path.name} is missing: see assets/README.md; it is never made again by a test"
    return path


def unpack(revision: str, directory: Path) -> Path:
    """Unpack the store into a directory; return its database file."""
    with tarfile.open(asset(revision)) as tar:
        for entry in tar.getmembers():
            assert not entry.name.startswith(("/", "..")) and (entry.isfile() or entry.isdir())
        tar.extractall(directory, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # type: ignore[arg-type]
    return directory / "store.db"


def put(revision: str, url: str, directory: Path) -> None:
    """Have the store of a revision at a URL."""
    if url.startswith("sqlite"):
        source = unpack(revision, directory)
        assert url == f"sqlite:///{source}"
        return
    (directory / "asset").mkdir()
    _load(unpack(revision, directory / "asset"), url, revision)


def _load(file: Path, url: str, revision: str) -> None:
    """Make the schema of a revision on PostgreSQL and give it the file's rows; side files become parts of blobs."""
    engine = create_store_engine(StoreConfig.parse(url))
    with closing(sqlite3.connect(file)) as source, schema_change(engine) as connection:
        run_alembic(connection, revision)
        metadata = sa.MetaData()
        metadata.reflect(connection)
        for table in metadata.sorted_tables:
            if table.name == VERSION_TABLE:
                continue
            cursor = source.execute(f'SELECT * FROM "{table.name}"')
            names = [column[0] for column in cursor.description]
            assert set(names) == set(table.columns.keys())
            rows = [_converted(table, dict(zip(names, row, strict=True))) for row in cursor]
            if table.name == "blob_parts":
                rows += _parts_of_files(source, Path(f"{file}-blobs"))
            if rows:
                connection.execute(sa.insert(table), rows)
            _go_on_counting(connection, table)
    engine.dispose()


def _converted(table: sa.Table, row: dict[str, Any]) -> dict[str, Any]:
    for name, value in row.items():
        kind = table.columns[name].type
        if value is not None and isinstance(kind, sa.DateTime):
            row[name] = datetime.fromisoformat(value).replace(tzinfo=timezone.utc)
        elif value is not None and isinstance(kind, sa.Boolean):
            row[name] = bool(value)
    if table.name == "blobs":
        row["file_name"] = None
    return row


def _parts_of_files(source: sqlite3.Connection, files: Path) -> list[dict[str, Any]]:
    rows = []
    for pk, name in source.execute("SELECT id, file_name FROM blobs WHERE file_name IS NOT NULL"):
        data = (files / name).read_bytes()
        assert len(data) <= PART_BYTES
        rows.append({"blob_pk": pk, "part": 0, "data": data})
    return rows


def _go_on_counting(connection: sa.Connection, table: sa.Table) -> None:
    """Have the next key be one that no row has."""
    key = next(iter(table.primary_key.columns), None)
    if key is not None and len(table.primary_key.columns) == 1:  # a key that counts nothing has no sequence: no effect
        highest = connection.scalar(sa.select(sa.func.max(key)))
        connection.execute(
            sa.text("SELECT setval(pg_get_serial_sequence(:table, :key), :n, :used)"),
            {"table": table.name, "key": key.name, "n": highest or 1, "used": highest is not None},
        )
