"""The page on tables and views, made from the models.

``python -m slime_store.schema.reference > docs/schema.md`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Column, ForeignKeyConstraint, Table, UniqueConstraint
from sqlalchemy.dialects import postgresql

from slime_store.models import Base
from slime_store.models.views import VIEWS, View
from slime_store.schema.revisions import HEAD

_HEAD = f"""\
# Tables and views

This page is made from `slime_store/models/`, by `python -m slime_store.schema.reference > docs/schema.md`; a test
compares them. It describes revision {HEAD} of the schema. [sql.md](sql.md) shows how to ask, in `sqlite3`, Datasette,
DuckDB and `psql`.

Ask the views: they have the newest complete attempt of every rollout, names instead of keys, and the same columns and
answers on SQLite and PostgreSQL. Their names and columns stay; tables may change with a revision, and the store's own
upgrade changes them.

* Keys end in `_pk`. What is called a document is JSON text; [design.md](design.md) says what keys with `$` mean.
* Yes or no is 1 or 0 in a view, on both databases.
* NaN is NULL in numbers, and `reward_type` tells it from None. Infinities stay.
* Times are UTC: `timestamptz` on PostgreSQL, text on SQLite, e.g. `2026-01-31 12:00:00.000000`.
"""

_TABLE_WORDS = """
The types are PostgreSQL's. SQLite stores booleans as 1 or 0, bytea as BLOB, and times as text.
"""


def page() -> str:
    """Return the whole page, in Markdown."""
    parts = [_HEAD, "\n## Views\n", *(line for view in VIEWS.values() for line in _view(view))]
    parts += ["\n## How the tables hang together\n\nKeys only.\n\n```mermaid\n", *_diagram(), "```\n"]
    parts += ["\n## Tables\n", _TABLE_WORDS, *(line for table in _tables() for line in _table(table))]
    return "".join(parts)


def _tables() -> list[Table]:
    """Every table after those that it refers to."""
    return list(Base.metadata.sorted_tables)


def _view(view: View) -> Iterator[str]:
    yield f"\n### {view.name}\n\n{view.doc}\n\n| column | type | meaning |\n| --- | --- | --- |\n"
    for column in view.columns:
        yield f"| `{column.name}` | {column.type} | {_cell(column.doc)} |\n"


def _table(table: Table) -> Iterator[str]:
    (doc,) = (mapper.class_.__doc__ for mapper in Base.registry.mappers if mapper.local_table is table)
    yield f"\n### {table.name}\n\n{_paragraphs(str(doc))}\n\n"
    yield "| column | type | meaning |\n| --- | --- | --- |\n"
    for column in table.columns:
        yield f"| `{column.name}` | {_type(column)} | {_cell(str(column.doc))} |\n"
    yield f"\n* Primary key: {_names(table.primary_key.columns.keys())}."
    for constraint in sorted(table.constraints, key=lambda each: str(each.name)):
        if isinstance(constraint, UniqueConstraint):
            yield f"\n* Unique: {_names(constraint.columns.keys())}."
    for constraint in sorted(table.foreign_key_constraints, key=_columns):
        target = ", ".join(element.column.name for element in constraint.elements)
        gone = {"CASCADE": ", deleted with it", "SET NULL": ", NULL without it"}.get(str(constraint.ondelete), "")
        yield f"\n* Refers to: {_names(constraint.column_keys)} to `{constraint.referred_table.name}` ({target}){gone}."
    for index in sorted(table.indexes, key=lambda each: str(each.name)):
        yield f"\n* Index: {_names(index.columns.keys())}."
    yield "\n"


def _diagram() -> Iterator[str]:
    yield "erDiagram\n"
    for table in _tables():
        for key in sorted(table.foreign_key_constraints, key=_columns):
            yield f"    {key.referred_table.name} {_cardinality(key)} {table.name} : {'_'.join(key.column_keys)}\n"
    for table in _tables():
        yield f"    {table.name} {{\n"
        for column in table.columns:
            marks = ["PK"] * column.primary_key + ["FK"] * bool(column.foreign_keys)
            if marks:
                yield f"        {_word(column)} {column.name} {', '.join(marks)}\n"
        yield "    }\n"


def _cardinality(key: ForeignKeyConstraint) -> str:
    """One or none of the parent; one, where the key is the child's own primary key, or many of the child."""
    parent = "|o" if any(column.nullable for column in key.columns) else "||"
    is_own = set(key.column_keys) == set(key.table.primary_key.columns.keys())
    return f"{parent}--{'o|' if is_own else 'o{'}"


def _type(column: Column[object]) -> str:
    return _word(column) if column.nullable else f"{_word(column)}, not NULL"


def _word(column: Column[object]) -> str:
    word = str(column.type.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
    return {"TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ", "DOUBLE PRECISION": "DOUBLE"}.get(word, word).lower()


def _columns(key: ForeignKeyConstraint) -> tuple[str, ...]:
    return tuple(key.column_keys)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _paragraphs(doc: str) -> str:
    return "\n".join(line.strip() for line in doc.strip().splitlines())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
