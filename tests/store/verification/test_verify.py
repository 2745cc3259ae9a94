"""``store.verify()``: a sound store is sound, damage is found and named, and the rest is looked at all the same."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from slime_store import Sample, SampleStore
from slime_store.errors import ReadOnlyStoreError, SchemaError
from slime_store.testing import assert_same
from slime_store.testing.contract.opening import opened, run_of
from slime_store.types import Problem, VerifyReport
from tests.services.filling import RUN, fill, make_filled, rich_train, side_files
from tests.services.tables import counts, execute, rows, value


@pytest.fixture
def filled(store_url: str) -> str:
    make_filled(store_url)
    return store_url


def verified(url: str) -> VerifyReport:
    with opened(url, read_only=True) as store:
        return store.verify()


def found(report: VerifyReport, code: str) -> Problem:
    """Return the first problem of a code."""
    assert not report.ok
    return next(problem for problem in report.problems if problem.code == code)


def pk(url: str, rollout_id: int, attempt: int = 1, kind: str = "train") -> int:
    return int(
        value(
            url,
            f"SELECT id FROM rollouts WHERE kind = '{kind}' AND rollout_id = {rollout_id} AND attempt = {attempt}",
        )
    )


def test_a_sound_store_has_no_problem_and_is_not_changed(filled: str) -> None:
    before, steps = counts(filled), []
    with opened(filled, read_only=True) as store:
        report = store.verify(progress=lambda done, total: steps.append((done, total)))
    assert (report.ok, report.problems) == (True, ())
    assert counts(filled) == before
    assert steps == [(n, before["rollouts"] + 1) for n in range(1, before["rollouts"] + 2)]
    assert {name: report.counts[name] for name in ("rollouts", "samples", "prompts", "blobs")} == {
        name: before[name] for name in ("rollouts", "samples", "prompts", "blobs")
    }
    assert report.counts["side_files"] == len(side_files(filled)) if side_files(filled) else True


def test_an_empty_store_and_one_in_memory_are_sound(store_url: str) -> None:
    with opened(store_url) as store:
        assert store.verify().ok
    with SampleStore.open(":memory:") as store:
        fill(store)
        report = store.verify(fix=True)
        assert report.ok and report.counts["rollouts"] == 6


PACK = "rollout_pk = {pk} AND field = '{field}'"

DAMAGE = {
    "the row of an array is gone": (
        "array_missing",
        "DELETE FROM sample_arrays WHERE " + PACK,
        "tokens",
        tuple(range(8)),
    ),
    "a mask is gone": ("bytes_disagree", "DELETE FROM sample_arrays WHERE " + PACK, "loss_mask", ()),
    "log-probs are gone": (
        "bytes_disagree",
        "DELETE FROM sample_arrays WHERE " + PACK,
        "rollout_log_probs",
        (),
    ),
    "an array has other bytes": (
        "array_damaged",
        "UPDATE sample_arrays SET data = {zeros} WHERE " + PACK,
        "tokens",
        tuple(range(8)),
    ),
    "an array's layout is damaged": (
        "array_damaged",
        "UPDATE sample_arrays SET layout = '{{' WHERE " + PACK,
        "loss_mask",
        tuple(range(8)),
    ),
    "a sample is gone": ("counts_disagree", "DELETE FROM samples WHERE rollout_pk = {pk} AND position = 3", "", (3,)),
    "a number of samples is huge": (
        "counts_disagree",
        "UPDATE rollouts SET n_samples = 1073741824 WHERE id = {pk}",
        "",
        tuple(range(8, 1008)),
    ),
    "its placeholders are damaged": ("unreadable", "UPDATE rollouts SET placeholders = 'Z]' WHERE id = {pk}", "", ()),
    "its placeholders are no texts": ("unreadable", "UPDATE rollouts SET placeholders = '[1]' WHERE id = {pk}", "", ()),
    "a number of tokens is wrong": (
        "counts_disagree",
        "UPDATE samples SET n_tokens = n_tokens + 1 WHERE rollout_pk = {pk} AND position = 2",
        "",
        (),
    ),
    "a group is gone": (
        "counts_disagree",
        "DELETE FROM sample_groups WHERE rollout_pk = {pk} AND position = 1",
        "",
        (),
    ),
    "a sample is in another group": (
        "rows_disagree",
        "UPDATE samples SET group_position = 0 WHERE rollout_pk = {pk} AND position = 2",
        "",
        (2,),
    ),
    "the nesting is damaged": ("unreadable", "UPDATE rollouts SET nesting = '[[1]]' WHERE id = {pk}", "", ()),
    "metrics do not decode": ("unreadable", "UPDATE rollouts SET metrics = '{{' WHERE id = {pk}", "", ()),
    "a text is gone": ("bytes_disagree", "DELETE FROM sample_texts WHERE rollout_pk = {pk} AND position = 1", "", ()),
    "a text is shorter": (
        "bytes_disagree",
        "UPDATE sample_texts SET response = 'x' WHERE rollout_pk = {pk} AND position = 1",
        "",
        (),
    ),
    "metadata does not decode": (
        "document_damaged",
        "UPDATE sample_documents SET metadata = '{{' WHERE rollout_pk = {pk} AND position = 5",
        "",
        (5,),
    ),
    "the state does not decode": (
        "document_damaged",
        "UPDATE rollout_states SET state = '{{' WHERE rollout_pk = {pk}",
        "",
        (),
    ),
    "a prompt is lost": (
        "prompt_missing",
        "UPDATE samples SET prompt_pk = NULL WHERE rollout_pk = {pk} AND position = 4",
        "",
        (4,),
    ),
    "a weight version is lost": (
        "versions_disagree",
        "DELETE FROM sample_weight_versions WHERE rollout_pk = {pk} AND position = 6",
        "",
        (6,),
    ),
    "a number of a reward is lost": (
        "rewards_disagree",
        "DELETE FROM sample_rewards WHERE rollout_pk = {pk} AND position = 2 AND key = 'task'",
        "",
        (2,),
    ),
    "an aggregate is wrong": (
        "aggregates_disagree",
        "UPDATE rollout_weight_versions SET n_samples = 99 WHERE rollout_pk = {pk} AND attribution = 'last'",
        "",
        (),
    ),
    "a reference to a blob is lost": (
        "reference_missing",
        "DELETE FROM blob_references WHERE rollout_pk = {pk}",
        "",
        (),
    ),
}


def check_damage(url: str, what: str) -> None:
    make_filled(url)
    code, statement, field, samples = DAMAGE[what]
    zeros = "x'00'" if url.startswith("sqlite") else "'\\x00'::bytea"
    execute(url, statement.format(pk=pk(url, 1), field=field, zeros=zeros))
    report = verified(url)
    problem = found(report, code)
    assert (problem.run, problem.kind, problem.rollout_id, problem.attempt) == (RUN, "train", 1, 1)
    assert problem.samples == samples and not problem.fixable
    others = [each for each in report.problems if (each.rollout_id, each.attempt) != (1, 1)]
    assert {each.code for each in others} <= {"prompt_unused", "blob_unused", "reference_dangling"}
    assert report.counts["rollouts"] == 6  # the others were looked at all the same


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_to_a_rollout_is_found_and_says_where(sqlite_url: str, what: str) -> None:
    check_damage(sqlite_url, what)


@pytest.mark.postgresql
@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[pytest.mark.slow] if i % 8 else []) for i, what in enumerate(DAMAGE)]
)
def test_damage_to_a_rollout_is_found_on_postgresql(postgres_url: str, what: str) -> None:
    check_damage(postgres_url, what)


@pytest.mark.slow_on_postgresql
def test_damage_to_an_eval_and_to_the_journal_is_found(filled: str) -> None:
    execute(
        filled,
        f"UPDATE eval_datasets SET n_samples = 99 WHERE position = 1 AND rollout_pk = {pk(filled, 0, kind='eval')}",
        f"UPDATE samples SET n_tokens = 0 WHERE rollout_pk = {pk(filled, 2, kind='journal')}",
    )
    problems = verified(filled).problems
    assert {(each.code, each.kind, each.rollout_id) for each in problems} == {
        ("counts_disagree", "eval", 0),
        ("counts_disagree", "journal", 2),
        ("unreadable", "eval", 0),
        ("digest_differs", "eval", 0),
        ("digest_differs", "journal", 2),
    }


@pytest.mark.slow_on_postgresql
def test_a_damaged_prompt_names_the_samples_that_have_it(filled: str) -> None:
    prompt = value(filled, f"SELECT prompt_pk FROM samples WHERE rollout_pk = {pk(filled, 5)} AND position = 5")
    execute(filled, f"UPDATE prompts SET document = '[]' WHERE id = {prompt}")
    problems = [each for each in verified(filled).problems if each.code == "prompt_damaged"]
    assert [(each.rollout_id, each.samples) for each in problems] == [(None, ()), (5, (4, 5, 6, 7))]


@pytest.mark.parametrize(
    ("code", "statement"),
    [
        ("prompt_damaged", "UPDATE prompts SET digest = CAST('x' AS TEXT) WHERE id = 1"),
        ("rows_disagree", "UPDATE blobs SET n_bytes = 'x' WHERE id = 1"),
    ],
    ids=["prompt", "blob"],
)
def test_a_text_where_sqlite_should_hold_something_else_is_found(sqlite_url: str, code: str, statement: str) -> None:
    make_filled(sqlite_url)
    execute(sqlite_url, statement)
    assert found(verified(sqlite_url), code)


def test_damaged_shared_content_names_every_rollout_and_sample_that_needs_it(filled: str) -> None:
    shared = "SELECT blob_pk FROM blob_references GROUP BY blob_pk HAVING count(*) > 2"
    part = f"UPDATE blobs SET n_bytes = n_bytes + 1 WHERE id IN ({shared})"
    execute(filled, part)
    problems = verified(filled).problems
    assert [each.rollout_id for each in problems if each.code == "blob_damaged"] == [None]
    hit = [(each.rollout_id, each.attempt, each.samples) for each in problems if each.code == "document_damaged"]
    assert hit == [(n, attempt, (at,)) for n, attempt in ((0, 1), (0, 2), (1, 1)) for at in (0, 2, 4)]
    assert any(each.code == "prompt_damaged" and each.samples == (3,) for each in problems)


def test_lost_and_shortened_side_files_are_found(sqlite_url: str) -> None:
    make_filled(sqlite_url)
    names = dict(rows(sqlite_url, "SELECT file_name, digest FROM blobs WHERE file_name IS NOT NULL"))
    unshared = [name for name, digest in names.items() if digest is None]
    shared = [name for name, digest in names.items() if digest is not None]
    root = Path(f"{sqlite_url.removeprefix('sqlite:///')}-blobs")
    (root / unshared[0]).unlink()
    (root / unshared[1]).write_bytes((root / unshared[1]).read_bytes()[:-1])
    damaged = bytearray((root / unshared[2]).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (root / unshared[2]).write_bytes(damaged)
    (root / shared[0]).write_bytes(b"x" * (root / shared[0]).stat().st_size)
    report = verified(sqlite_url)
    codes = [each.code for each in report.problems]
    assert codes.count("blob_missing") == 1 and codes.count("blob_damaged") == 2  # one pack, and the picture
    arrays = [each for each in report.problems if each.code == "array_damaged"]
    assert [(each.samples, "rollout_routed_experts" in each.what) for each in arrays] == [((0,), True)] * 3
    assert len({(each.rollout_id, each.attempt) for each in arrays}) == 3


def test_h10_flipped_bytes_in_any_page_are_reported_and_the_rest_is_looked_at(sqlite_url: str) -> None:
    make_filled(sqlite_url)
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    whole = path.read_bytes()
    size = 16384
    reported = 0
    for page in range(1, len(whole) // size, 3):
        damaged = bytearray(whole)
        for at in range(page * size + 8, page * size + size - 8, 64):
            damaged[at] ^= 0x55
        path.write_bytes(damaged)
        try:
            report = verified(sqlite_url)
        except SchemaError:  # a page that opening reads
            continue
        reported += not report.ok
        assert report.counts
        assert path.read_bytes() == damaged
    path.write_bytes(whole)
    assert reported > 10
    assert verified(sqlite_url).ok


def test_missing_indexes_and_columns_are_found(store_url: str) -> None:
    make_filled(store_url)
    execute(store_url, "DROP INDEX ix_samples_prompt_pk")
    problem = found(verified(store_url), "schema_differs")
    assert problem.what == "index ix_samples_prompt_pk is missing"


# -- fixing


def orphans(url: str) -> None:
    digest = "x'00'" if url.startswith("sqlite") else "'\\x00'::bytea"
    statements = [
        f"INSERT INTO prompts (id, digest, text, prompt_id) VALUES (900, {digest}, 'nobody asked', 'x')",
        "INSERT INTO blobs (id, codec, dtype, n_raw_bytes, n_bytes) VALUES (900, 'raw.1', 'uint8', 1, 1)",
        f"INSERT INTO blob_parts (blob_pk, part, data) VALUES (900, 0, {digest})",
    ]
    execute(url, *statements)


def test_fix_deletes_what_nothing_refers_to_and_nothing_else(filled: str) -> None:
    before = counts(filled)
    orphans(filled)
    report = verified(filled)
    assert {each.code for each in report.problems if each.fixable} == {"prompt_unused", "blob_unused"}
    with opened(filled, read_only=True) as store, pytest.raises(ReadOnlyStoreError):
        store.verify(fix=True)
    with opened(filled) as store:
        report = store.verify(fix=True)
        assert [each.fixed for each in report.problems if each.fixable] == [True, True]
        assert store.verify().ok
    assert counts(filled) == before


def test_fix_removes_old_side_files_that_no_row_names_and_leaves_young_ones(sqlite_url: str) -> None:
    make_filled(sqlite_url)
    with opened(sqlite_url) as store:
        mine = side_files(sqlite_url)
        root = Path(f"{sqlite_url.removeprefix('sqlite:///')}-blobs")
        stray = [root / "aa" / f"aa{'0' * 29}{n}.blob" for n in range(2)] + [root / "aa" / "x.blob.tmp"]
        draft = root.parent / ".slime_store-0123.new"
        (root / "aa").mkdir(exist_ok=True)
        for path in [*stray, draft]:
            path.write_bytes(b"left over")
        report = store.verify(fix=True)
        assert report.ok and report.counts["young_files"] == 2
        for path in [*stray[1:], draft]:
            os.utime(path, (time.time() - 7200,) * 2)
        report = store.verify()
        assert sorted(each.code for each in report.problems) == ["file_temporary", "file_temporary", "file_unused"]
        assert all(each.fixable and not each.fixed for each in report.problems)
        assert store.verify(fix=True).ok
        assert side_files(sqlite_url) == sorted([*mine, stray[0]]) and not draft.exists()
        assert store.verify(fix=True, grace_seconds=-1).ok
        assert side_files(sqlite_url) == mine
        assert_same(store.run(RUN).load_train(1), rich_train(2))


@pytest.mark.slow_on_postgresql
def test_fix_touches_no_row_of_a_damaged_store_and_no_content_that_lost_its_reference(filled: str) -> None:
    with run_of(filled) as run:
        expected = run.load_train(1)
    execute(filled, f"DELETE FROM blob_references WHERE rollout_pk = {pk(filled, 1)}")
    before = counts(filled)
    with opened(filled) as store:
        report = store.verify(fix=True)
        assert {each.code for each in report.problems} == {"reference_missing", "bytes_disagree"}
        assert_same(store.run(RUN).load_train(1), expected)
    assert counts(filled) == before
    orphans(filled)
    execute(filled, f"UPDATE rollouts SET layouts = '{{' WHERE id = {pk(filled, 5)}")
    before = counts(filled)
    with opened(filled) as store:
        assert not store.verify(fix=True).ok
    assert counts(filled) == before


@pytest.mark.slow_on_postgresql
def test_what_is_deleted_or_recorded_under_the_check_is_no_problem(filled: str) -> None:
    with opened(filled) as store, opened(filled) as other:
        run = other.run(RUN)

        def change(done: int, _total: int) -> None:
            if done == 1:
                run.delete_rollout(1)
                run.record_train(0, rich_train(4), on_conflict="replace")
            run.record_train(100 + done, rich_train(done))

        report = store.verify(fix=True, progress=change)
        assert report.problems == ()
        assert_same(run.load_train(0), rich_train(4))


def test_a_number_of_a_reward_that_is_kept_as_a_stand_in_is_no_fault(store_url: str) -> None:
    class Score(float):
        pass

    with opened(store_url) as store:
        run = store.run("run")
        run.record_train(0, [[Sample(reward={"a": Score(1.5), "b": 2.0})]], strict=False)
        assert [each.reward["b"] for each in run.iter_samples()] == [2.0]
        assert store.verify().problems == ()
