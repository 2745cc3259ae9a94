"""Whether a database has the tables that its schema revision promises."""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from slime_store.models import Base
from slime_store.schema.revisions import VERSION_TABLE


def strangers(connection: Connection) -> list[str]:
    """Name the triggers on our tables, and the views in the place of one: they decide what is stored and read.

    None is ever ours. Costs one small query.
    """
    names = {VERSION_TABLE, *Base.metadata.tables}
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql("SELECT type, name, tbl_name FROM sqlite_master WHERE type != 'index'")
        rows = [(kind, name, table) for kind, name, table in found if kind in ("trigger", "view")]
    else:
        query = text(
            "SELECT 'trigger', t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid "
            "WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace "
            "UNION SELECT 'view', c.relname, c.relname FROM pg_class c "
            "WHERE c.relkind IN ('v', 'm') AND c.relnamespace = current_schema()::regnamespace"
        )
        rows = [tuple(row) for row in connection.execute(query)]
    return sorted(
        f"{kind} {name} on table {table}" if kind == "trigger" else f"view {name} in the place of a table"
        for kind, name, table in rows
        if table.lower() in names  # SQLite's names know no upper case
    )


def differences(connection: Connection) -> list[str]:
    """Say what the tables lack of what the models declare. The cost does not grow with the rows."""
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    found = strangers(connection)
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
    return found
