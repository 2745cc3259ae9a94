"""What in a database would change or hide rows behind our statements: whoever made the file, nothing of it is ours.

A table, an index or a view of a user's own beside ours may stay, as long as nothing that we do sets it to work. What
may not: triggers and virtual tables anywhere; views in the place of our tables; keys by which our deletions reach into
other tables, or other tables' into ours; columns of ours that are computed, or of another type, for SQLite converts
what it stores; primary keys and keys to each other that are gone, or primary keys that
number no rows; texts that are not UTF-8, of which SQLite replaces characters where it converts them; clauses by which a
row is dropped or replaced in silence; unique, partial or computed indexes on our
tables. On PostgreSQL also rules, row security, inheritance, domains, which may call functions, collations, by which two
names are one, and functions and operators in our schema, which may fit a statement better than those that are meant.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.dialects import sqlite

from slime_store.models import Base
from slime_store.schema.revisions import VERSION_TABLE

_TABLE = re.compile(r"create\s+table\b", re.IGNORECASE)
_INDEX = re.compile(r"create\s+(unique\s+)?index\b", re.IGNORECASE)
_VIEW = re.compile(r"create\s+view\b", re.IGNORECASE)
_NO_WORDS = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
"""Texts, quoted names and comments, as SQLite's tokenizer tells them apart: what begins first hides the others."""
_ALTERING = frozenset({"conflict", "collate", "generated", "as", "check"})
"""Words of which our tables have none: they replace, drop or refuse rows, compare otherwise, or compute."""

# Of what SQLite keeps as C strings and compares without regard to case, the Python that follows must see the same.
_OBJECTS = "SELECT lower(type), name, tbl_name, sql FROM sqlite_master"
_COLUMNS = """
SELECT 'column' AS what, lower(m.name), lower(x.name), upper(x.type), x.hidden, x.dflt_value, x.pk
FROM sqlite_master m JOIN pragma_table_xinfo(m.name) x WHERE lower(m.type) = 'table'
UNION ALL
SELECT 'index', lower(m.name), i.name, i.origin, i."unique", i.partial,
    EXISTS (SELECT 1 FROM pragma_index_xinfo(i.name) WHERE cid = -2)
FROM sqlite_master m JOIN pragma_index_list(m.name) i WHERE lower(m.type) = 'table'
UNION ALL
SELECT 'key', lower(m.name), lower(f."from"), lower(f."table"), lower(f."to"), f.on_delete, f.on_update
FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f WHERE lower(m.type) = 'table'
UNION ALL
SELECT 'encoding', encoding, '', '', '', '', '' FROM pragma_encoding()
"""

_POSTGRESQL = """
WITH ours AS (SELECT * FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(:names))
SELECT format('trigger %s on table %s', t.tgname, o.relname)
FROM pg_trigger t JOIN ours o ON o.oid = t.tgrelid WHERE NOT t.tgisinternal
UNION ALL SELECT format('view %s in the place of a table', relname) FROM ours WHERE relkind IN ('v', 'm')
UNION ALL SELECT format('foreign or partitioned table %s in the place of a table', relname)
FROM ours WHERE relkind IN ('f', 'p')
UNION ALL SELECT format('rule %s on table %s', r.rulename, o.relname)
FROM pg_rewrite r JOIN ours o ON o.oid = r.ev_class WHERE o.relkind = 'r'
UNION ALL SELECT format('row security on table %s', relname) FROM ours WHERE relrowsecurity
UNION ALL SELECT format('table %s that inherits from table %s', c.relname, o.relname)
FROM pg_inherits i JOIN ours o ON o.oid = i.inhparent JOIN pg_class c ON c.oid = i.inhrelid
UNION ALL SELECT format('table %s that inherits from table %s', o.relname, c.relname)
FROM pg_inherits i JOIN ours o ON o.oid = i.inhrelid AND o.relkind = 'r' JOIN pg_class c ON c.oid = i.inhparent
UNION ALL SELECT format('key %s of table %s to table %s with an action', k.conname, c.relname, o.relname)
FROM pg_constraint k JOIN ours o ON o.oid = k.confrelid JOIN pg_class c ON c.oid = k.conrelid
WHERE k.contype = 'f' AND (k.confdeltype NOT IN ('a', 'r') OR k.confupdtype NOT IN ('a', 'r'))
    AND k.conrelid NOT IN (SELECT oid FROM ours)
UNION ALL SELECT format('key %s of table %s to table %s', k.conname, o.relname, c.relname)
FROM pg_constraint k JOIN ours o ON o.oid = k.conrelid JOIN pg_class c ON c.oid = k.confrelid
WHERE k.contype = 'f' AND k.confrelid NOT IN (SELECT oid FROM ours)
UNION ALL SELECT format('computed column %s.%s', o.relname, a.attname)
FROM pg_attribute a JOIN ours o ON o.oid = a.attrelid WHERE a.attgenerated <> '' AND NOT a.attisdropped
UNION ALL SELECT format('column %s.%s with a value where none is given', o.relname, a.attname)
FROM pg_attrdef d JOIN ours o ON o.oid = d.adrelid JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum = d.adnum
WHERE a.attgenerated = '' AND pg_get_expr(d.adbin, d.adrelid) NOT LIKE 'nextval(%'
UNION ALL SELECT format('column %s.%s of a type or with a collation of somebody else''s', o.relname, a.attname)
FROM pg_attribute a JOIN ours o ON o.oid = a.attrelid AND o.relkind = 'r' JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attnum > 0 AND NOT a.attisdropped
    AND (t.typnamespace <> 'pg_catalog'::regnamespace OR a.attcollation <> t.typcollation)
UNION ALL SELECT format('table %s that a crash of the server empties', relname) FROM ours WHERE relpersistence <> 'p'
UNION ALL SELECT format('check %s of table %s', k.conname, o.relname)
FROM pg_constraint k JOIN ours o ON o.oid = k.conrelid WHERE k.contype IN ('c', 'x')
UNION ALL SELECT format('function %s beside the tables', proname)
FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
UNION ALL SELECT format('operator %s beside the tables', oprname)
FROM pg_operator WHERE oprnamespace = current_schema()::regnamespace
UNION ALL SELECT format('unique, partial or computed index %s on table %s', c.relname, o.relname)
FROM pg_index i JOIN ours o ON o.oid = i.indrelid JOIN pg_class c ON c.oid = i.indexrelid
WHERE (i.indisunique OR i.indpred IS NOT NULL OR i.indexprs IS NOT NULL)
    AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid AND k.conrelid = o.oid
        AND k.contype IN ('p', 'u'))
"""


class _Object(NamedTuple):
    kind: str
    name: str
    table: str
    sql: str | None


def strangers(connection: Connection) -> list[str]:
    """Name what could change or hide rows of ours. None of it is ever ours. Costs one or two small queries."""
    if connection.dialect.name != "sqlite":
        return sorted(connection.scalars(text(_POSTGRESQL), {"names": sorted(_ours())}))
    found = [_stranger(row) for row in connection.exec_driver_sql(_OBJECTS).fetchall()]
    named = sorted(each for each in found if each)
    # not before: the details of a virtual table are asked of the code that stands behind it
    return named or sorted(set(_in_tables(connection)))


def _stranger(row: Any) -> str:
    """Say what an object of an SQLite schema is if it must not be there; empty if it may."""
    if not all(type(part) is str and "\0" not in part for part in row[:3]) or not isinstance(row[3], (str, type(None))):
        return "object of an unknown kind"
    each = _Object(*row)
    is_ours = each.table.lower() in _ours()  # SQLite's names know no upper case
    if each.kind == "trigger":
        return f"trigger {each.name} on table {each.table}"
    if each.kind == "view" and _VIEW.match(each.sql or ""):
        return f"view {each.name} in the place of a table" if is_ours else ""
    if each.kind == "table" and _TABLE.match(each.sql or ""):
        words = re.findall(r"\w+", _NO_WORDS.sub(" ", (each.sql or "").lower())) if is_ours else []
        odd = sorted(_ALTERING.intersection(words))
        if odd:
            return f"table {each.name} with {odd[0].upper()} in it"
        is_reused = each.name.lower() in _numbered() and "autoincrement" not in words
        return f"table {each.name} that numbers rows anew (no AUTOINCREMENT)" if is_reused else ""
    if each.kind == "index" and (each.sql is None or _INDEX.match(each.sql)):  # what it does, SQLite says: below
        return ""
    return f"{'virtual table' if each.kind == 'table' else each.kind} {each.name}"


def _in_tables(connection: Connection) -> list[str]:
    found = []
    types, keys, ours = _column_types(), _keys(), _ours()
    columns, present, primary = set(), set(), dict[str, dict[int, str]]()
    for what, table, column, *details in connection.exec_driver_sql(_COLUMNS).fetchall():
        if what == "column" and table in ours:
            kind, hidden, default, place = details
            columns.add((table, column))
            if place:
                primary.setdefault(table, {})[place] = column
            if hidden:
                found.append(f"computed column {table}.{column}")
            elif kind != types.get((table, column), kind):
                found.append(f"column {table}.{column} of another type ({kind})")
            elif default is not None and (table, column) in types:
                found.append(f"column {table}.{column} with a value where none is given")
        elif what == "index" and table in ours:
            origin, *odd = details
            if origin == "c" and any(odd):  # made by CREATE INDEX
                found.append(f"unique, partial or computed index {column} on table {table}")
        elif what == "key":
            target, to, *actions = details
            if table in ours:
                present.add((table, column, target))
                if (table, column, target, to, *actions) not in keys:
                    found.append(f"key of table {table} to table {target}")
            elif target in ours and not {"NO ACTION", "RESTRICT"}.issuperset(actions):
                found.append(f"key of table {table} to table {target} with an action")
        elif what == "encoding" and table != "UTF-8":
            found.append(f"text encoding {table}")
    for table, names in _primary_keys().items():
        if (
            any(each == table for each, _ in columns)
            and [primary.get(table, {}).get(n + 1) for n in range(len(names))] != names
        ):
            found.append(f"table {table} without its primary key")
    for table, column, target, *_ in keys:
        if (table, column) in columns and (table, column, target) not in present:
            found.append(f"table {table} without its key to table {target}")
    return found


@cache
def _ours() -> frozenset[str]:
    return frozenset({VERSION_TABLE, *Base.metadata.tables})


@cache
def _numbered() -> frozenset[str]:
    """Return the tables that never give the number of a row to another one."""
    tables = Base.metadata.tables.values()
    return frozenset(table.name for table in tables if table.dialect_options["sqlite"]["autoincrement"])


@cache
def _primary_keys() -> dict[str, list[str]]:
    """Return the columns of each primary key, in order: the same in all revisions."""
    return {table.name: [each.name for each in table.primary_key] for table in Base.metadata.tables.values()}


@cache
def _column_types() -> dict[tuple[str, str], str]:
    """Return SQLite's type of each column of ours, the same in all revisions that have the column."""
    dialect = sqlite.dialect()
    return {
        (table.name, column.name): str(column.type.compile(dialect))
        for table in Base.metadata.tables.values()
        for column in table.columns
    }


@cache
def _keys() -> frozenset[tuple[str, ...]]:
    """Return each column that refers to another: the same in all revisions that have it."""
    return frozenset(
        (
            table.name,
            element.parent.name,
            element.column.table.name,
            element.column.name,
            key.ondelete or "NO ACTION",
            key.onupdate or "NO ACTION",
        )
        for table in Base.metadata.tables.values()
        for key in table.foreign_key_constraints
        for element in key.elements
    )
