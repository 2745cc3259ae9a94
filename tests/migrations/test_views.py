"""The views are what the package says of them: names, columns in order, types."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Double, Engine, Integer, Text, inspect
from sqlalchemy.types import DateTime

from slime_store.config import StoreConfig
from slime_store.database import create_store_engine, read
from slime_store.models import Base
from slime_store.models.views import VIEWS
from slime_store.schema import ensure_schema
from slime_store.schema.comparison import _VIEWS, differences
from slime_store.testing import make_eval_output, make_train_output
from slime_store.testing.contract.opening import run_of
from tests.services.tables import rows

KINDS = {"text": Text, "integer": Integer, "double": Double, "timestamp": DateTime}


@pytest.fixture
def engine(store_url: str) -> Iterator[Engine]:
    config = StoreConfig.parse(store_url)
    engine = create_store_engine(config)
    ensure_schema(engine, config)
    yield engine
    engine.dispose()


def test_the_migrations_make_the_views_that_the_package_describes(engine: Engine) -> None:
    with read(engine) as connection:
        inspector = inspect(connection)
        assert set(inspector.get_view_names()) == set(VIEWS)
        for view in VIEWS.values():
            columns = inspector.get_columns(view.name)
            assert [column["name"] for column in columns] == [column.name for column in view.columns], view.name
            if engine.dialect.name == "postgresql":
                for found, said in zip(columns, view.columns, strict=True):
                    assert isinstance(found["type"], KINDS[said.type]), (view.name, found)
    assert not VIEWS.keys() & Base.metadata.tables.keys()


def test_verify_knows_each_view_of_the_migrations(engine: Engine) -> None:
    with read(engine) as connection:
        assert _VIEWS.keys() == VIEWS.keys() and differences(connection) == [], "their SQL has changed: see _VIEWS"


def test_values_have_the_types_that_are_said_on_both_databases(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, make_train_output(2, 2))
        run.record_eval(0, make_eval_output({"a": 2}), weight_version="1")
    types = {"text": str, "integer": int, "double": float}
    for view in VIEWS.values():
        for row in rows(store_url, f"SELECT * FROM {view.name}"):
            for value, column in zip(row, view.columns, strict=True):
                if value is not None and column.type != "timestamp":
                    assert type(value) is types[column.type], (view.name, column)
