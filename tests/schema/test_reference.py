"""The page on tables and views is what the models say."""

from __future__ import annotations

from pathlib import Path

from slime_store.models import Base
from slime_store.models.views import VIEWS
from slime_store.schema.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "schema.md"


def test_the_committed_page_is_the_one_that_the_models_make() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m slime_store.schema.reference > docs/schema.md"


def test_every_column_has_a_meaning() -> None:
    undocumented = [
        f"{table.name}.{column.name}"
        for table in Base.metadata.tables.values()
        for column in table.columns
        if not column.doc
    ]
    assert undocumented == []
    assert all(column.doc for view in VIEWS.values() for column in view.columns)


def test_the_page_has_every_table_and_view_and_a_diagram_of_all_keys() -> None:
    text = page()
    assert all(f"\n### {name}\n" in text for name in (*Base.metadata.tables, *VIEWS))
    keys = [key for table in Base.metadata.tables.values() for key in table.foreign_key_constraints]
    assert sum("--o" in line for line in text.splitlines()) == len(keys)
