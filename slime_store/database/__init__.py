"""Engines, transactions and bulk inserts; knows no table by name."""

from slime_store.database.after_fork import members, tell_after_fork
from slime_store.database.bulk import chunked, in_binary, insert_rows
from slime_store.database.changes import schema_change
from slime_store.database.compaction import compact
from slime_store.database.companions import Identity, check_place, identity, refuse_others_files
from slime_store.database.drafts import draft_of, publish
from slime_store.database.engine import create_store_engine, engine_config
from slime_store.database.failures import translate_os_error, translated
from slime_store.database.filesystem import filesystem_type, is_network
from slime_store.database.interrupts import closed_if_interrupted
from slime_store.database.journal import settle_journal, truncate_log
from slime_store.database.names import check_only_name, check_reading_name, remove_first_name
from slime_store.database.numbers import ensure_number
from slime_store.database.pages import copy_pages
from slime_store.database.recognition import is_database, number_of
from slime_store.database.reconnection import reconnecting
from slime_store.database.transactions import read, write

__all__ = [
    "Identity",
    "check_only_name",
    "check_place",
    "check_reading_name",
    "chunked",
    "closed_if_interrupted",
    "compact",
    "copy_pages",
    "create_store_engine",
    "draft_of",
    "engine_config",
    "ensure_number",
    "filesystem_type",
    "identity",
    "in_binary",
    "insert_rows",
    "is_database",
    "is_network",
    "members",
    "number_of",
    "publish",
    "read",
    "reconnecting",
    "refuse_others_files",
    "remove_first_name",
    "schema_change",
    "settle_journal",
    "tell_after_fork",
    "translate_os_error",
    "translated",
    "truncate_log",
    "write",
]
