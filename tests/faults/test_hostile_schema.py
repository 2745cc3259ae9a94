"""Schemas made by somebody who means harm: what would change or hide rows is refused, what is beside them is not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from slime_store import Sample, SampleStore
from slime_store.errors import DamagedStoreError, DatabaseError, ForeignDatabaseError, SchemaError
from slime_store.schema import VERSION_TABLE
from slime_store.schema.comparison import differences
from slime_store.store.upkeep import store_status, upgrade_store

TRIGGER = "CREATE TRIGGER t AFTER INSERT ON sample_texts BEGIN UPDATE sample_texts SET response = 'other'; END"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, 'x' AS version_num FROM n"
HACK = "PRAGMA writable_schema = ON"
REACHING = "CREATE TABLE notes (id INTEGER PRIMARY KEY, r INTEGER REFERENCES rollouts (id) ON DELETE CASCADE)"
ON_NOTES = "CREATE TRIGGER t AFTER DELETE ON notes BEGIN DELETE FROM rollouts; END"


def as_kind(kind: str, name: str) -> list[str]:
    return [HACK, f"UPDATE sqlite_master SET type = '{kind}' WHERE name = '{name}'"]


def in_table(table: str, before: str, after: str) -> list[str]:
    return [HACK, f"UPDATE sqlite_master SET sql = replace(sql, '{before}', '{after}') WHERE name = '{table}'"]


HOSTILE: dict[str, tuple[list[str], str]] = {
    "a trigger": ([TRIGGER], "trigger t on table sample_texts"),
    "a trigger on a name in capitals": ([TRIGGER.replace("sample_texts", "SAMPLE_Texts")], "trigger t on table SAMPLE"),
    "a trigger whose kind is in capitals": ([TRIGGER, *as_kind("TRIGGER", "t")], "trigger t on table sample_texts"),
    "a trigger on a table that deletions reach": ([REACHING, ON_NOTES], "trigger t on table notes"),
    "a trigger on a table of somebody else's": (["CREATE TABLE notes (a)", ON_NOTES], "trigger t on table notes"),
    "a trigger on a view": (
        [
            "CREATE INDEX [in brackets] ON [samples] ([reward])",
            "CREATE INDEX `in backticks` ON `samples` (`status` /* of nobody's */)",
            'ALTER TABLE samples ADD COLUMN "as" TEXT',
            "CREATE VIEW mine AS SELECT * FROM runs",
            "CREATE TRIGGER t INSTEAD OF DELETE ON mine BEGIN DELETE FROM runs; END",
        ],
        "trigger t on table mine",
    ),
    "a view in the place of a table": (["DROP TABLE pins", f"CREATE VIEW pins AS {ENDLESS}"], "view pins in the place"),
    "a view whose kind is in capitals": (
        ["DROP TABLE pins", f"CREATE VIEW pins AS {ENDLESS}", *as_kind("VIEW", "pins")],
        "view pins in the place",
    ),
    "a view in the place of the version": (
        [f"DROP TABLE {VERSION_TABLE}", f"CREATE VIEW {VERSION_TABLE} AS {ENDLESS}"],
        f"view {VERSION_TABLE} in the place",
    ),
    "a table that deletions reach": ([REACHING], "key of table notes to table rollouts with an action"),
    "a table that changes reach": ([REACHING.replace("DELETE CASCADE", "UPDATE SET NULL")], "key of table notes"),
    "a deletion that reaches us": (
        in_table(
            "pins",
            "fk_pins_run_pk FOREIGN KEY(run_pk) REFERENCES runs (id)",
            "x FOREIGN KEY(run_pk) REFERENCES blobs (id)",
        ),
        "key of table pins to table blobs",
    ),
    "a deletion that reaches us by a key of a column": (
        in_table("runs", "name TEXT NOT NULL", "name TEXT NOT NULL REFERENCES prompts (text) ON DELETE CASCADE"),
        "key of table runs to table prompts",
    ),
    "another action": (in_table("pins", "ON DELETE CASCADE", "ON DELETE SET NULL"), "key of table pins"),
    "a virtual table": (
        [HACK, "INSERT INTO sqlite_master VALUES ('table', 'v', 'v', 0, 'CREATE VIRTUAL TABLE v USING fts5(a)')"],
        "virtual table v",
    ),
    "a computed column": (
        ["ALTER TABLE sample_texts ADD COLUMN more TEXT GENERATED ALWAYS AS (response || 'x') VIRTUAL"],
        "table sample_texts with (ALWAYS|AS) in it",
    ),
    "a computed column in place of ours": (
        in_table("sample_texts", "response TEXT NOT NULL", 'response TEXT AS ("label")'),
        "table sample_texts with AS in it",
    ),
    "a column of another type": (
        in_table("sample_texts", "response TEXT", "response NUMERIC"),
        r"column sample_texts\.response of another type \(NUMERIC\)",
    ),
    "a comparison without case": (in_table("runs", "name TEXT", "name TEXT COLLATE NOCASE"), "table runs with COLLATE"),
    "rows that are dropped in silence": (
        in_table("pins", "PRIMARY KEY (run_pk, kind, rollout_id)", "PRIMARY KEY (run_pk) ON/**/CONFLICT IGNORE"),
        "table pins with CONFLICT in it",
    ),
    **{
        f"a comparison without case between quotation marks in {what}": (
            in_table("runs", "name TEXT NOT NULL", f"{before}name TEXT NOT NULL {first} COLLATE NOCASE {second}"),
            "table runs with COLLATE",
        )
        for what, (before, first, second) in {
            "comments": ("", '/* " */', '/* " */'),
            "comments of a line": ("", "-- `\n", "-- `\n"),
            "texts": ("mine TEXT DEFAULT ''\"'', ", "", ", more TEXT DEFAULT ''\"''"),
            "names": ('"[" TEXT, ', "", ', "]" TEXT'),
            "a comment that has no end": ("", "", '/* "'),
        }.items()
    },
    "a value where we give none": (
        in_table("sessions", "lineage TEXT", "lineage TEXT DEFAULT 1"),
        r"column sessions\.lineage with a value where none is given",
    ),
    "no primary key": (
        in_table(
            "prompts", "id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "id INTEGER /* PRIMARY KEY AUTOINCREMENT */"
        ),
        "table prompts that numbers rows anew",
    ),
    "no primary key of two columns": (
        in_table("sample_texts", "PRIMARY KEY (rollout_pk, position)", "UNIQUE (rollout_pk, position)"),
        "table sample_texts without its primary key",
    ),
    "a primary key of other columns": (
        in_table("pins", "PRIMARY KEY (run_pk, kind, rollout_id)", "PRIMARY KEY (run_pk, rollout_id, kind)"),
        "table pins without its primary key",
    ),
    "a primary key that numbers no rows": (
        in_table("runs", "NOT NULL PRIMARY KEY AUTOINCREMENT", "NOT NULL PRIMARY KEY DESC /* */"),
        "table runs that numbers rows anew",
    ),
    "numbers that are given again": (in_table("blobs", "AUTOINCREMENT", ""), "table blobs that numbers rows anew"),
    "a key of ours that is gone": (
        in_table(
            "samples", "FOREIGN KEY(prompt_pk) REFERENCES prompts (id)", "CONSTRAINT y UNIQUE (rollout_pk, position)"
        ),
        "table samples without its key to table prompts",
    ),
    "a unique index": (["CREATE UNIQUE INDEX i ON runs (config)"], "index i on table runs"),
    "a partial index": (["CREATE INDEX i ON runs (config) WHERE name = 'a'"], "index i on table runs"),
    "a computed index": (["CREATE INDEX i ON runs (abs(name))"], "index i on table runs"),
    "a computed index by our name": (
        ["DROP INDEX ix_eval_datasets_name", "CREATE INDEX ix_eval_datasets_name ON eval_datasets (upper(name))"],
        "index ix_eval_datasets_name",
    ),
    "a kind that nobody knows": ([TRIGGER, *as_kind("trigger' || char(0) || 'x", "t")], "object of an unknown kind"),
    "a trigger that says it is an index": ([TRIGGER, *as_kind("index", "t")], "index t on table sample_texts"),
    "a trigger that says it is a table": ([TRIGGER, *as_kind("table", "t")], "virtual table t"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with SampleStore.open(path) as store:
        store.run("run").record_train(0, [[Sample(response="abc")]])
    return path


def change(path: Path, statements: list[str]) -> bytes:
    """Change a schema, and return the file as it is then."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path.read_bytes()


@pytest.mark.parametrize(("statements", "what"), HOSTILE.values(), ids=HOSTILE)
def test_what_would_change_or_hide_rows_is_refused_when_a_store_is_opened(
    path: Path, statements: list[str], what: str
) -> None:
    before = change(path, statements)
    for read_only in (False, True):
        with pytest.raises(SchemaError, match=rf"{what}|malformed") as caught:
            SampleStore.open(path, read_only=read_only).runs()
        assert type(caught.value) in (ForeignDatabaseError, DamagedStoreError)
    assert path.read_bytes() == before


def test_a_file_whose_texts_are_not_utf_8_is_refused(path: Path, tmp_path: Path) -> None:
    """SQLite makes U+FFFD of U+FFFE and U+FFFF where it converts them."""
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as ours, closing(sqlite3.connect(other, isolation_level=None)) as made:
        made.execute("PRAGMA encoding = 'UTF-16le'")
        made.execute(f"PRAGMA application_id = {ours.execute('PRAGMA application_id').fetchone()[0]}")
        for (sql,) in ours.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'sqlite_sequence' ORDER BY rowid"
        ):
            made.execute(sql)
        (revision,) = ours.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
        made.execute(f"INSERT INTO {VERSION_TABLE} VALUES (?)", (revision,))
    with pytest.raises(ForeignDatabaseError, match="text encoding UTF-16le"):
        SampleStore.open(other)


def test_a_view_by_the_name_of_a_function_of_sqlite_is_not_set_to_work(path: Path) -> None:
    before = change(path, [f"CREATE VIEW pragma_user_version AS {ENDLESS}"])
    for read_only in (False, True):
        with pytest.raises(DatabaseError, match="is not a function"):
            SampleStore.open(path, read_only=read_only)
    assert path.read_bytes() == before


def test_no_command_looks_into_what_is_refused(path: Path, tmp_path: Path) -> None:
    before = change(path, ["DROP TABLE pins", f"CREATE VIEW pins AS {ENDLESS}", *as_kind("VIEW", "pins")])
    status = store_status(path)
    assert (status.state, status.revision) == ("foreign", None) and "view pins" in status.detail
    with pytest.raises(ForeignDatabaseError, match="view pins"):
        upgrade_store(path)
    assert path.read_bytes() == before and [each.name for each in tmp_path.glob("*.backup*")] == []


def test_tables_indexes_and_views_of_a_users_own_may_be_beside_ours(path: Path) -> None:
    change(
        path,
        [
            "CREATE TABLE notes (id INTEGER PRIMARY KEY, rollout INTEGER REFERENCES rollouts (id), "
            "text TEXT DEFAULT '' CHECK (text <> 'x') UNIQUE ON CONFLICT REPLACE, n AS (length(text)))",
            "CREATE UNIQUE INDEX notes_of ON notes (rollout, upper(text)) WHERE text <> ''",
            "CREATE TABLE more (note INTEGER REFERENCES notes ON DELETE CASCADE)",
            """ALTER TABLE runs ADD COLUMN "check" TEXT DEFAULT 'collate ''as"' /* generated */""",
            'CREATE INDEX "of a user" ON rollouts ("started_at" DESC, status COLLATE NOCASE)',
            "CREATE VIEW mine AS SELECT * FROM v_samples JOIN notes",
            "INSERT INTO notes (rollout, text) SELECT id, 'good' FROM rollouts",
            "ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'",
            "ANALYZE",
        ],
    )
    with SampleStore.open(path) as store:
        run = store.run("run")
        run.record_train(1, [[Sample(response="xyz")]])
        assert [sample.response for sample in run.iter_samples()] == ["abc", "xyz"]
        assert store.verify().ok
        run.delete_rollout(1)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT text, n FROM notes").fetchall() == [("good", 4)]


def test_verify_names_a_view_of_ours_that_asks_for_something_else_or_is_gone(path: Path) -> None:
    change(path, ["DROP VIEW v_samples", "CREATE VIEW v_samples AS SELECT * FROM v_sample_texts", "DROP VIEW v_eval"])
    with SampleStore.open(path) as store:
        assert [(problem.code, problem.what) for problem in store.verify().problems] == [
            ("schema_differs", "view v_eval is missing"),
            ("schema_differs", "view v_samples asks for something else"),
        ]


def test_functions_that_a_schema_must_not_call_are_not_called(path: Path) -> None:
    with SampleStore.open(path) as store, store._handle.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA trusted_schema").scalar_one() == 0


FUNCTION = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"
ON_SERVER: dict[str, tuple[list[str], str]] = {
    "a trigger": (
        [FUNCTION, "CREATE TRIGGER t BEFORE INSERT ON samples FOR EACH ROW EXECUTE FUNCTION f()"],
        "trigger t on table samples",
    ),
    "a rule": (["CREATE RULE r AS ON DELETE TO pins DO INSTEAD NOTHING"], "rule r on table pins"),
    "row security": (["ALTER TABLE pins ENABLE ROW LEVEL SECURITY"], "row security on table pins"),
    "a child": (["CREATE TABLE child () INHERITS (pins)"], "table child that inherits from table pins"),
    "a parent": (
        ["CREATE TABLE parent (note TEXT)", "ALTER TABLE pins INHERIT parent"],
        "table pins that inherits from table parent",
    ),
    "a key with an action": (
        ["CREATE TABLE notes (r BIGINT CONSTRAINT k REFERENCES rollouts (id) ON DELETE CASCADE)"],
        "key k of table notes to table rollouts with an action",
    ),
    "a key of ours": (
        [
            "CREATE TABLE notes (id BIGINT PRIMARY KEY)",
            "ALTER TABLE pins ADD CONSTRAINT k FOREIGN KEY (rollout_id) REFERENCES notes ON DELETE CASCADE",
        ],
        "key k of table pins to table notes",
    ),
    "a computed column": (
        ["ALTER TABLE pins ADD COLUMN more TEXT GENERATED ALWAYS AS (note || 'x') STORED"],
        "computed column pins.more",
    ),
    "a value where we give none": (["ALTER TABLE pins ALTER note SET DEFAULT 'x'"], "column pins.note with a value"),
    "a type that calls a function": (
        ["CREATE DOMAIN d AS text CHECK (VALUE <> 'x')", "ALTER TABLE pins ADD COLUMN more d"],
        "column pins.more of a type",
    ),
    "a comparison of another language": (
        ['ALTER TABLE pins ADD COLUMN more text COLLATE "POSIX"'],
        "column pins.more of a type or with a collation",
    ),
    "a table that a crash empties": (["ALTER TABLE sample_rewards SET UNLOGGED"], "table sample_rewards that a crash"),
    "rows that exclude each other": (
        ["ALTER TABLE pins ADD CONSTRAINT x EXCLUDE USING btree (note WITH =)"],
        "check x of table pins",
    ),
    "a check": (["ALTER TABLE pins ADD CONSTRAINT k CHECK (note <> 'x')"], "check k of table pins"),
    "a function": (
        ["CREATE FUNCTION length(bytea) RETURNS integer LANGUAGE sql AS 'SELECT 5'"],
        "function length beside the tables",
    ),
    "an operator": (
        [
            "CREATE FUNCTION f(text, varchar) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
            "CREATE OPERATOR = (LEFTARG = text, RIGHTARG = varchar, FUNCTION = f)",
        ],
        "operator = beside the tables",
    ),
    "no primary key": (
        ["ALTER TABLE sample_texts DROP CONSTRAINT pk_sample_texts"],
        "the primary key of table sample_texts is missing",
    ),
    "a key of ours that is gone": (
        ["ALTER TABLE samples DROP CONSTRAINT fk_samples_prompt_pk"],
        "the key of table samples to table prompts is missing",
    ),
    "a partial index": (["CREATE INDEX i ON pins (note) WHERE note = 'a'"], "index i on table pins"),
    "a unique index": (["CREATE UNIQUE INDEX i ON pins (note)"], "index i on table pins"),
}


@pytest.mark.postgresql
def test_verify_names_what_would_change_or_hide_rows_on_a_server(postgres_url: str) -> None:
    with SampleStore.open(postgres_url) as store:
        store.run("run").record_train(0, [[Sample()]])
        harmless = ["CREATE TABLE mine (r BIGINT REFERENCES rollouts (id))", "CREATE INDEX j ON pins (note)"]
        for statements, what in [(harmless, ""), *ON_SERVER.values()]:
            connection = store._handle.engine.connect()
            with connection, connection.begin() as transaction:
                for statement in statements:
                    connection.exec_driver_sql(statement)
                found = differences(connection)
                transaction.rollback()
            assert any(what in each for each in found) if what else found == [], found
        with store._handle.engine.begin() as connection:
            for statement in ON_SERVER["a trigger"][0]:
                connection.exec_driver_sql(statement)
        report = store.verify()
    assert [(problem.code, problem.what) for problem in report.problems] == [
        ("schema_differs", "function f beside the tables"),
        ("schema_differs", "trigger t on table samples"),
    ]
