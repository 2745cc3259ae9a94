"""The ten questions of docs/queries.md: the Python lines, the command lines and the SQL give the same answers."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlalchemy import make_url

from tests.services.commands import invoke

PAGE = (Path(__file__).parents[2] / "docs" / "queries.md").read_text("utf-8")
_HEAD, *QUESTIONS = re.split(r"^## \d+\. ", PAGE, flags=re.MULTILINE)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> dict[str, str]:
    """Return the blocks of a part of the page, by language; each may be there once."""
    found = _BLOCK.findall(text)
    assert len({language for language, _ in found}) == len(found)
    return dict(found)


def from_frame(frame: Any) -> list[dict[str, Any]]:
    missing = frame.isna()
    return [
        {name: None if missing[name].loc[i] else row[name] for name in frame.columns} for i, row in frame.iterrows()
    ]


def from_sql(url: str, query: str) -> list[dict[str, Any]]:
    if query.startswith("-- DuckDB"):
        cursor = duckdb.sql(query)
        names = list(cursor.columns)
    elif make_url(url).get_backend_name() == "sqlite":
        import sqlite3

        cursor = sqlite3.connect(str(make_url(url).database)).execute(query)
        names = [each[0] for each in cursor.description]
    else:
        import psycopg

        address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        query = query.replace(".metadata ->>", ".metadata::jsonb ->>")
        cursor = psycopg.connect(address, options="-c search_path=slime_store").execute(query.encode())
        names = [each.name for each in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def from_shell(url: str, lines: str) -> list[dict[str, Any]] | None:
    words = shlex.split(lines)
    assert words[0] == "slime-store"
    is_export = "export" in words
    done = invoke(*words[1:], *([] if is_export else ["--format", "json"]), SLIME_STORE_URL=url)
    assert done.exit_code == 0, (done.stderr, done.exception)
    found: list[dict[str, Any]] | None = None if is_export else json.loads(done.stdout)
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, (int, float)) or type(one).__name__ == "Decimal":
        return other is not None and math.isclose(float(one), float(other), rel_tol=1e-9)
    return bool(one == other)


def assert_agree(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """The same number of rows, and equal values in the columns that both have; at least one."""
    assert len(one) == len(other) > 0
    common = [name for name in one[0] if name in other[0]]
    assert common
    for row, twin in zip(one, other, strict=True):
        for name in common:
            assert same(row[name], twin[name]), (name, row, twin)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_three_answers_to_each_question_agree(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(blocks(_HEAD)["python"].replace('"runs.db"', repr(store_url)), scope)
    assert len(QUESTIONS) == 10
    for question in QUESTIONS:
        parts = blocks(question)
        exec(parts["python"], scope)
        answer = from_frame(scope["answer"])
        shown = from_shell(store_url, parts["shell"])
        if shown is not None:
            assert_agree(answer, shown)
        assert_agree(answer, from_sql(store_url, parts["sql"]))
