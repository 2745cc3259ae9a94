"""A value that has become another, in any column of any table, is reported with the rollout and samples it is of."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from slime_store import Sample
from slime_store.codecs.canonical import digest_values
from slime_store.mapping.encoded import SAMPLE_COLUMNS
from slime_store.models import Base
from slime_store.models.base import UTCDateTime
from slime_store.models.coverage import IN_ITSELF, LEFT_OUT, OF_ROLLOUT, ROW_DIGEST, SAMPLE_PARTS
from slime_store.testing.contract.opening import opened
from slime_store.types import Problem, VerifyReport
from tests.services.filling import RUN, fill, make_filled, rich_train

TABLES = Base.metadata.tables
COVERED = {**OF_ROLLOUT, **IN_ITSELF, **SAMPLE_PARTS}
UNNOTICED = {
    ("rollouts", "pruned_by"),
    ("blobs", "n_raw_bytes"),
    ("blobs", "codec"),
    ("blobs", "dtype"),
}
"""Columns that damage may reach unseen, in some rows: nothing that is loaded or asked for depends on them there."""


def test_every_column_is_covered_or_left_out_for_a_reason() -> None:
    for name, table in TABLES.items():
        covered, left_out = COVERED.get(name, ()), LEFT_OUT.get(name, {})
        assert sorted([*covered, *left_out]) == sorted(table.columns.keys()), f"a digest of {name} needs a new version"
        assert all(left_out.values())
    assert {name for name in {*COVERED, *LEFT_OUT}} == set(TABLES)


def test_what_recording_gives_is_in_the_order_in_which_it_is_covered() -> None:
    keys = ("prompt_pk", "first_weight_version_pk", "last_weight_version_pk")
    assert OF_ROLLOUT["samples"] == (*SAMPLE_COLUMNS, *keys)
    assert all(ROW_DIGEST in TABLES[name].columns for name in IN_ITSELF)


@contextmanager
def behind_its_back(url: str) -> Iterator[sa.Connection]:
    """Connect as one who may change everything: no reference is enforced."""
    engine = sa.create_engine(url)
    if engine.dialect.name == "postgresql":

        @event.listens_for(engine, "connect")
        def _as_replica(connection: Any, _record: Any) -> None:
            with connection.cursor() as cursor:
                cursor.execute("SET session_replication_role = replica")
                cursor.execute("SET search_path = slime_store")
            connection.commit()

    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def changed(value: Any, column: sa.Column[Any]) -> Any:
    """Return the nearest other value of a column: one bit or one letter."""
    if isinstance(value, datetime):
        return value + timedelta(microseconds=1)
    kind = datetime if isinstance(column.type, UTCDateTime) else column.type.python_type
    if value is None:
        return {int: 1, float: 0.5, str: "x", bytes: b"x", bool: True, datetime: datetime.now(timezone.utc)}[kind]
    if kind is bool:
        return not value
    if kind is int:
        unique = (each for each in column.table.constraints if isinstance(each, sa.UniqueConstraint))
        is_key = column.primary_key or column.foreign_keys or any(column.name in each.columns for each in unique)
        return value + 1003 if is_key else value ^ 1
    if kind is float:
        return struct.unpack("<d", (int.from_bytes(struct.pack("<d", value), "little") ^ 1).to_bytes(8, "little"))[0]
    if kind is bytes:
        return bytes([value[0] ^ 1]) + value[1:] if value else b"x"
    return value[:-1] + chr(ord(value[-1]) ^ 1) if value else "x"


def chosen(connection: sa.Connection, column: sa.Column[Any]) -> dict[str, Any]:
    """Return a row with a value in the column, if there is one, in the middle of the table."""
    table = column.table
    query = sa.select(table).order_by(*table.primary_key.columns)
    found = connection.execute(query.where(column.is_not(None))).mappings().all()
    found = found or connection.execute(query).mappings().all()
    assert found, f"the filled store has no row of {table.name}"
    return dict(found[(len(found) - 1) // 2])


def damaged(url: str, column: sa.Column[Any]) -> tuple[VerifyReport, dict[str, Any]]:
    """Change a value, verify, and put the value back; return what was found, and the row as it was."""
    table: Any = column.table
    with behind_its_back(url) as connection:
        row = chosen(connection, column)
        same = [key == row[key.name] for key in table.primary_key.columns]
        value = changed(row[column.name], column)
        assert connection.execute(sa.update(table).where(*same).values({column.name: value})).rowcount == 1
    with opened(url, read_only=True) as store:
        report = store.verify()
    with behind_its_back(url) as connection:
        now = {**row, column.name: value}
        same = [key == now[key.name] for key in table.primary_key.columns]
        assert connection.execute(sa.update(table).where(*same).values({column.name: row[column.name]})).rowcount == 1
    return report, row


def address(url: str, rollout_pk: int) -> tuple[Any, ...]:
    rollouts = TABLES["rollouts"]
    with behind_its_back(url) as connection:
        query = sa.select(rollouts.c.kind, rollouts.c.rollout_id, rollouts.c.attempt)
        return tuple(connection.execute(query.where(rollouts.c.id == rollout_pk)).one())


def of_digests(report: VerifyReport) -> list[Problem]:
    return [problem for problem in report.problems if problem.code == "digest_differs"]


def check_columns(url: str, name: str, columns: Iterable[sa.Column[Any]]) -> None:
    """See that a changed value in each of some columns of a table is reported, and for what it was of."""
    make_filled(url)
    with opened(url) as store:
        store.run(RUN).pin(0, note="why")
    for column in columns:
        report, row = damaged(url, column)
        where = f"{name}.{column.name}"
        if column.name in COVERED.get(name, ()):
            problems = of_digests(report)
            assert problems and not any(problem.fixable for problem in problems), where
            check_places(url, name, column, row, problems)
        else:
            keys = {column.name, *(key.column.name for key in column.foreign_keys)}
            is_enforced = url.startswith("postgresql") and "id" in keys
            assert not report.ok or (name, column.name) in UNNOTICED or is_enforced, where
    with opened(url, read_only=True) as store:
        assert store.verify().ok  # all was put back


def check_places(url: str, name: str, column: Any, row: dict[str, Any], problems: list[Problem]) -> None:
    """See that problems are those of the row, and name its samples where it has some."""
    where, first = f"{name}.{column.name}", problems[0]
    if name in IN_ITSELF:
        assert first.what.endswith(f"of {name}") and len(problems) == 1, where
        assert first.run == RUN or column.name in ("name", "run_pk", "session_pk"), where
        return
    if name == "rollouts":
        assert any("own row" in problem.what for problem in problems), where
        return
    place = (RUN, *address(url, row["rollout_pk"]))
    assert {(each.run, each.kind, each.rollout_id, each.attempt) for each in problems} == {place}, where
    if column.primary_key:
        return  # the row may be another sample's or group's now
    if name in ("samples", *SAMPLE_PARTS):
        assert [problem.samples for problem in problems] == [(row["position"],)], where
    elif name == "sample_groups":
        assert len(problems) == 1 and f"groups {row['position']}" in first.what, where
        assert row["first_position"] in first.samples, where
    elif name == "eval_datasets":
        assert f"datasets {row['position']}" in first.what, where
    elif name == "sample_arrays" and column.name != "last_position":
        assert first.samples == tuple(range(row["first_position"], row["last_position"] + 1)), where


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_changed_value_in_any_column_is_reported_and_says_where(sqlite_url: str, name: str, every: int) -> None:
    columns = list(TABLES[name].columns)
    check_columns(sqlite_url, name, columns[len(columns) % every :: every])


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "name",
    ["rollout_weight_versions", *(pytest.param(each, marks=pytest.mark.slow) for each in ("samples", "sessions"))],
)
def test_a_changed_value_of_any_type_is_reported_on_postgresql(postgres_url: str, name: str) -> None:
    columns = {str(TABLES[name].columns[each].type): TABLES[name].columns[each] for each in COVERED[name]}
    check_columns(postgres_url, name, columns.values())


@pytest.mark.slow
@pytest.mark.postgresql
@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_changed_value_in_any_column_is_reported_on_postgresql(postgres_url: str, name: str) -> None:
    check_columns(postgres_url, name, TABLES[name].columns)


def test_a_row_that_is_gone_or_new_is_reported(store_url: str) -> None:
    make_filled(store_url)
    metrics, texts = TABLES["rollout_metrics"], TABLES["sample_texts"]
    with behind_its_back(store_url) as connection:
        pk = connection.scalar(sa.select(sa.func.min(metrics.c.rollout_pk)))
        connection.execute(sa.delete(metrics).where(metrics.c.rollout_pk == pk))
        connection.execute(sa.insert(metrics), {"rollout_pk": pk + 1, "depth": 1, "key": "new", "value": 0.0})
        connection.execute(sa.delete(texts).where(texts.c.rollout_pk == pk, texts.c.position == 3))
    with opened(store_url, read_only=True) as store:
        found = {(each.what, each.rollout_id, each.attempt, each.samples) for each in of_digests(store.verify())}
    n = len(rich_train(0).metrics or ())
    assert found == {
        (f"the numbers of the metrics: 0 rows are there, {n} were recorded", 0, 1, ()),
        ("not as recorded: the numbers of the metrics 1 new", 0, 2, ()),
        ("samples are not as recorded", 0, 1, (3,)),
    }


def test_an_old_row_and_a_damaged_one_get_no_digest_by_being_changed(store_url: str) -> None:
    with opened(store_url) as store:
        fill(store)
    versions = TABLES["weight_versions"]
    with behind_its_back(store_url) as connection:
        connection.execute(
            sa.update(versions).where(versions.c.label == "3").values(first_seen_at=datetime.now(timezone.utc))
        )
        run = sa.update(TABLES["runs"]).where(TABLES["runs"].c.name == "empty")
        connection.execute(run.values(row_digest=None))
    with opened(store_url) as store:
        store.run("empty", config={"lr": 1.0})
        with store._handle.writing("test") as connection:
            from slime_store.repositories.weight_versions import WeightVersionRepository

            pk = connection.scalar(sa.select(versions.c.id).where(versions.c.label == "3"))
            WeightVersionRepository(connection).describe(pk, params=None, notes='"other"')
        report = store.verify()
    assert [problem.what for problem in of_digests(report)] == [f"not as recorded: row {pk} of weight_versions"]
    assert report.counts["rows_without_digest"] == 1


def test_samples_on_a_page_that_can_be_read_are_compared_when_others_cannot(sqlite_url: str) -> None:
    make_filled(sqlite_url)
    samples = "UPDATE sample_texts SET response = "
    with behind_its_back(sqlite_url) as connection:
        pk = connection.exec_driver_sql("SELECT min(id) FROM rollouts").scalar()
        connection.exec_driver_sql(f"{samples} CAST(X'bdff' AS TEXT) WHERE rollout_pk = {pk} AND position = 2")
        connection.exec_driver_sql(f"{samples} 'other' WHERE rollout_pk = {pk} AND position = 5")
    with opened(sqlite_url, read_only=True) as store:
        report = store.verify()
    assert [each.samples for each in report.problems if each.code == "unreadable"] == [(2,)]
    assert [each.samples for each in of_digests(report)] == [(5,)]


def with_arrays(number: int) -> list[list[Sample]]:
    """Return samples with arrays that no codec makes smaller, so that those of any two rollouts are equally long."""
    rng = np.random.default_rng(number)
    sample = Sample(tokens=[1] * 4000, response_length=4000, loss_mask=rng.integers(0, 2, 4000).tolist())
    sample.rollout_routed_experts = rng.integers(0, 256, (4000, 50, 4), dtype=np.uint8)  # type: ignore[attr-defined]
    return [[sample]]


@pytest.mark.parametrize("field", ["loss_mask", "rollout_routed_experts"])
def test_arrays_that_have_taken_anothers_place_are_reported(store_url: str, field: str) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        for number in range(2):
            run.record_train(number, with_arrays(number))
    arrays, parts, blobs = TABLES["sample_arrays"], TABLES["blob_parts"], TABLES["blobs"]
    with behind_its_back(store_url) as connection:
        query = sa.select(arrays).where(arrays.c.field == field).order_by(arrays.c.rollout_pk)
        one, other = connection.execute(query).all()
        assert (one.layout, one.n_bytes, one.blob_pk is None) == (other.layout, other.n_bytes, field == "loss_mask")
        if field == "loss_mask":
            changed = sa.update(arrays).where(arrays.c.field == field, arrays.c.rollout_pk == one.rollout_pk)
            connection.execute(changed.values(data=other.data))
        else:
            connection.execute(sa.delete(parts).where(parts.c.blob_pk == one.blob_pk))
            connection.execute(sa.update(parts).where(parts.c.blob_pk == other.blob_pk).values(blob_pk=one.blob_pk))
            named = sa.select(blobs.c.file_name).where(blobs.c.id == other.blob_pk).scalar_subquery()
            connection.execute(sa.update(blobs).where(blobs.c.id == one.blob_pk).values(file_name=named))
    with opened(store_url, read_only=True) as store:
        (problem,) = of_digests(store.verify())
    assert (problem.rollout_id, problem.samples) == (0, (0,)) and field in problem.what


def test_arrays_whose_digests_were_taken_without_their_content_are_sound(store_url: str) -> None:
    with opened(store_url) as store:
        run = store.run(RUN)
        run.record_train(0, with_arrays(0))
    digests, arrays = TABLES["rollout_digests"], TABLES["sample_arrays"]
    with behind_its_back(store_url) as connection:
        covered = [arrays.c[name] for name in OF_ROLLOUT["sample_arrays"]]
        rows = connection.execute(sa.select(*covered).order_by(arrays.c.field, arrays.c.first_position)).all()
        earlier = b"".join(digest_values(list(row)) for row in rows)
        connection.execute(sa.update(digests).where(digests.c.subject == "sample_arrays").values(digests=earlier))
    with opened(store_url, read_only=True) as store:
        assert store.verify().ok
