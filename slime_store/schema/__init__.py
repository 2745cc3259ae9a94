"""Checks, creates and upgrades the schema of a store, by Alembic only."""

from slime_store.schema.identity import check_same_tables, check_still_current, tables_identity
from slime_store.schema.migrator import ensure_schema
from slime_store.schema.revisions import HEAD, REVISIONS, VERSION_TABLE, stored_revision

__all__ = [
    "HEAD",
    "REVISIONS",
    "VERSION_TABLE",
    "check_same_tables",
    "check_still_current",
    "ensure_schema",
    "stored_revision",
    "tables_identity",
]
