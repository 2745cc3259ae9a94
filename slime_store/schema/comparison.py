"""Whether a database has the tables that its schema revision promises."""

from __future__ import annotations

from sqlalchemy import Connection, inspect

from slime_store.models import Base
from slime_store.schema.strangers import strangers


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
