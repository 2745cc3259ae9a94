"""Whether a database has the tables that its schema revision promises."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, Inspector, Table, inspect
from sqlalchemy.exc import DBAPIError

from slime_store.models import Base
from slime_store.schema.strangers import strangers

_VIEWS = {
    "v_eval": "b6332842922a8a03",
    "v_eval_summary": "527e43b491a0eaa0",
    "v_metrics": "62f38ae738df5b89",
    "v_prompts": "9dae48d863d52f6c",
    "v_rewards_by_weight_version": "0f602021da127040",
    "v_rollout_attempts": "21b97c3dbdd000c5",
    "v_rollouts": "cf6410633c033435",
    "v_sample_rewards": "df41c6a3b8916d8e",
    "v_sample_texts": "8143c9c8e445082b",
    "v_sample_weight_versions": "078b1ef4de7ad892",
    "v_samples": "733c8317e1811ab7",
    "v_sessions": "330b494db5b58a7f",
    "v_weight_versions": "923d36f93fcfdbd3",
}
"""The beginning of the SHA-256 of each view's SQL on SQLite, in single blanks; a test compares it with the migrations.

PostgreSQL keeps no SQL of a view, but words of its own for it, which its versions choose.
"""


def differences(connection: Connection) -> list[str]:
    """Say what the tables lack of what the models declare. The cost does not grow with the rows."""
    found = strangers(connection)
    try:
        return found + _missing(connection)
    except DBAPIError:
        if not found:
            raise
        return found  # an operator of a stranger's may break the very questions that are asked of a schema


def _missing(connection: Connection) -> list[str]:
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    found = []
    for name, table in sorted(Base.metadata.tables.items()):
        if name not in present:
            found.append(f"table {name} is missing")
            continue
        columns = {column["name"] for column in inspector.get_columns(name)}
        missing = sorted({column.name for column in table.columns} - columns)
        found += [f"column {name}.{column} is missing" for column in missing]
        indexes = {index["name"] for index in inspector.get_indexes(name)}
        lost = sorted({str(index.name) for index in table.indexes} - indexes)
        found += [f"index {index} is missing" for index in lost]
        if connection.dialect.name != "sqlite":  # there `strangers` has looked at the keys
            found += _missing_keys(inspector, table)
    return found + _other_views(connection, set(inspector.get_view_names()))


def _missing_keys(inspector: Inspector, table: Table) -> list[str]:
    found = []
    if inspector.get_pk_constraint(table.name)["constrained_columns"] != [each.name for each in table.primary_key]:
        found.append(f"the primary key of table {table.name} is missing")
    present = {
        (tuple(key["constrained_columns"]), key["referred_table"], key["options"].get("ondelete"))
        for key in inspector.get_foreign_keys(table.name)
    }
    for key in table.foreign_key_constraints:
        if (tuple(key.column_keys), key.referred_table.name, key.ondelete) not in present:
            found.append(f"the key of table {table.name} to table {key.referred_table.name} is missing")
    return sorted(found)


def _other_views(connection: Connection, present: set[str]) -> list[str]:
    found = [f"view {name} is missing" for name in sorted(_VIEWS.keys() - present)]
    if connection.dialect.name == "sqlite":
        for name, sql in connection.exec_driver_sql(
            "SELECT name, sql FROM sqlite_master WHERE type = 'view' ORDER BY 1"
        ):
            if name in _VIEWS and hashlib.sha256(" ".join(str(sql).split()).encode()).hexdigest()[:16] != _VIEWS[name]:
                found.append(f"view {name} asks for something else")
    return found
