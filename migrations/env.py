"""Alembic's way in: in process with a connection that is given, or from the command line by alembic.ini.

From the command line the store is named by ``-x store=URL_OR_PATH`` or ``SLIME_STORE_URL``, never in a file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from alembic import context
from alembic.operations import MigrationScript
from alembic.util import CommandError
from sqlalchemy.types import TypeDecorator

VERSION_TABLE = "slime_store_version"


def _render_item(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """Write a column type of ours as the type beneath it: revisions never import slime_store."""
    if kind == "type" and isinstance(item, TypeDecorator):
        return f"sa.{item.impl!r}"
    return False


def _number(_context: Any, _revision: Any, directives: list[MigrationScript]) -> None:
    """Number revisions in order: 0001, 0002, ..."""
    directives[0].rev_id = f"{_known_revisions() + 1:04d}"


def _known_revisions() -> int:
    return len(list(context.script.walk_revisions()))


def _migrate(connection: sa.Connection) -> None:
    options: dict[str, Any] = {}
    if context.config.attributes.get("connection") is None:  # the command line may write revisions
        from slime_store.models import Base

        options = {"target_metadata": Base.metadata, "render_item": _render_item}
        options["process_revision_directives"] = _number
        options["render_as_batch"] = _known_revisions() > 0  # SQLite alters a table by rebuilding it
    context.configure(connection=connection, version_table=VERSION_TABLE, **options)
    with context.begin_transaction():
        context.run_migrations()


def _from_command_line() -> None:
    from slime_store.config import StoreConfig
    from slime_store.database import create_store_engine, schema_change

    target = context.get_x_argument(as_dictionary=True).get("store") or os.environ.get("SLIME_STORE_URL")
    if not target:
        raise CommandError("name the store: alembic -x store=URL_OR_PATH ..., or set SLIME_STORE_URL")
    config = StoreConfig.parse(target)
    if config.path is not None and not config.path.exists():
        Path(config.path).touch(exist_ok=False)
    engine = create_store_engine(config)
    with schema_change(engine) as connection:
        _migrate(connection)
    engine.dispose()


if context.is_offline_mode():
    raise CommandError("SQL scripts (--sql) are not supported: run the migration against the store")
given = context.config.attributes.get("connection")
if given is None:
    _from_command_line()
else:
    _migrate(given)
