"""What a dump's name, its neighbours and its content say of it: a training rollout or an eval, and which."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from slime_store import Run, SampleStore
from slime_store.errors import InvalidDumpError
from slime_store.interchange import export_pt, export_run, import_path, read_dump
from slime_store.interchange.dump_names import Neighbours, name_of
from slime_store.interchange.importing import find_dumps, import_any
from slime_store.testing import make_eval_output, make_sample, make_train_output
from tests.interchange.archives import dump_of, saved

TEMPLATES = (
    "{rollout_id}.pt",
    "step{rollout_id}.pt",
    "step_{rollout_id}.pt",
    "Rollout{rollout_id}.pt",
    "retrieval_{rollout_id}.pt",
    "retrieval{rollout_id}.pt",
    "eval{rollout_id}.pt",
    "step{rollout_id}_v2.pt",
    "{rollout_id}_of_run_7.pt",
    "{rollout_id}_of_{rollout_id}.pt",
    "a.{rollout_id}.final.pt",
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("12.pt", ("train", 12)),
        ("eval_12.pt", ("eval", 12)),
        ("rollout_eval_0007.pt", ("eval", 7)),
        ("rollouteval_7.pt", ("eval", 7)),
        ("run3_step_12.pt", ("train", 12)),
        ("medieval_12.pt", ("train", 12)),
        ("retrieval_12.pt", ("train", 12)),
        ("stepeval_12.pt", ("train", 12)),
        ("eval_3_step_12.pt", ("train", 12)),
        ("12_copy.pt", ("train", 12)),
        ("dump.pt", ("train", None)),
        ("eval.pt", ("train", None)),
    ],
)
def test_what_a_name_says(name: str, expected: Any) -> None:
    found = name_of(f"/data/eval_1/{name}")
    assert (found.kind, found.number) == expected


@pytest.mark.parametrize(
    ("name", "rollout_id", "kind"),
    [
        ("eval_3_step_12.pt", 3, "eval"),
        ("eval_3_step_12.pt", 12, "train"),
        ("eval_3_v2.pt", 3, "eval"),
        ("eval_03.pt", 3, "eval"),
        ("eval_3.pt", 8, "eval"),
        ("eval_13.pt", 3, "eval"),
    ],
)
def test_what_a_name_says_when_the_rollout_is_known(name: str, rollout_id: int, kind: str) -> None:
    assert name_of(name, rollout_id).kind == kind


@pytest.fixture
def run(sqlite_url: str) -> Any:
    with SampleStore.open(sqlite_url) as store:
        run = store.run("source")
        run.record_train(39, make_train_output(1, 2))
        run.record_train(40, make_train_output(2, 2))
        run.record_eval(40, make_eval_output())
        run.record_eval(41, make_eval_output())
        yield run


def copied(run: Run, sqlite_url: str, path: Path, **options: Any) -> list[tuple[str, int, int]]:
    with SampleStore.open(sqlite_url) as store:
        copy = store.run("copy")
        report = import_path(copy, path, **options)
        assert not report.failed and not any(each.notes for each in report.files)
        return [(each.kind, each.rollout_id, each.attempt) for each in copy.rollouts(attempts=True)]


ALL = [("train", 39, 1), ("train", 40, 1), ("eval", 40, 1), ("eval", 41, 1)]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("by_slime", [False, True])
def test_what_was_exported_by_a_template_comes_back_as_what_it_was(
    run: Run, sqlite_url: str, tmp_path: Path, template: str, by_slime: bool
) -> None:
    folder = tmp_path / "out"
    if by_slime:  # no `datasets`, and an eval of every template beside a training rollout of it
        for kind, rollout_id, _ in ALL:
            name = template.format(rollout_id=("eval_" if kind == "eval" else "") + str(rollout_id))
            saved(folder / name, dump_of([make_sample(rollout_id)], rollout_id))
    else:
        export_run(run, folder / template)
    assert copied(run, sqlite_url, folder) == ALL


@pytest.mark.parametrize("kind", ["train", "eval"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_folder_gives_those_of_one_kind_only(
    run: Run, sqlite_url: str, tmp_path: Path, template: str, kind: Any
) -> None:
    export_run(run, tmp_path / "out" / template)
    assert copied(run, sqlite_url, tmp_path / "out", kind=kind) == [each for each in ALL if each[0] == kind]


@pytest.mark.parametrize(("name", "kind"), [("medieval_12.pt", "eval"), ("12.pt", "train")])
def test_a_folder_of_which_no_file_turns_out_to_be_of_the_kind_is_an_error(
    sqlite_url: str, tmp_path: Path, name: str, kind: Any
) -> None:
    others = {} if kind == "eval" else {"datasets": {"gsm8k": 1}}  # which say that it is an eval
    saved(tmp_path / "out" / name, dump_of([make_sample(0)], 12, **others))
    with SampleStore.open(sqlite_url) as store:
        with pytest.raises(InvalidDumpError, match=f"no {kind} dump"):
            import_path(store.run("one"), tmp_path / "out", kind=kind)
        (tmp_path / "out" / ("eval_13.pt" if kind == "eval" else "13.pt")).write_bytes(b"no dump")
        assert len(import_path(store.run("one"), tmp_path / "out", kind=kind).failed) == 1


def test_an_eval_under_any_name_is_known_by_its_datasets(run: Run, sqlite_url: str, tmp_path: Path) -> None:
    for name in ("final.pt", "stepeval_40.pt", "retrieval_40.pt", "40.pt"):
        file = export_pt(run, 40, tmp_path / name, kind="eval").path
        assert read_dump(file).kind == "eval"
        assert read_dump(file, kind="train").kind == "train"
    assert copied(run, sqlite_url, tmp_path / "final.pt") == [("eval", 40, 1)]


def test_datasets_that_are_none_make_no_eval(tmp_path: Path) -> None:
    samples = [make_sample(0), make_sample(1)]
    for datasets in (["gsm8k"], {"gsm8k": 3}, {"gsm8k": "2"}, {}, None):
        dump = read_dump(saved(tmp_path / "1.pt", dump_of(samples, datasets=datasets)))
        assert (dump.kind, dump.extras) == ("train", {"datasets": datasets})


def test_a_word_that_ends_like_an_eval_is_none_without_a_training_rollout_beside_it(tmp_path: Path) -> None:
    for name in ("retrieval_39.pt", "retrieval_40.pt", "retrieval_eval_40.pt"):
        file = saved(tmp_path / name, dump_of([make_sample(0)], 40))
    assert read_dump(tmp_path / "retrieval_40.pt").notes == ()  # its evals are called otherwise
    assert (read_dump(file).kind, read_dump(file).notes) == ("eval", ())


def test_where_nothing_tells_the_kind_the_report_says_so(sqlite_url: str, tmp_path: Path) -> None:
    file = saved(tmp_path / "stepeval_40.pt", dump_of([make_sample(0)], 40))
    with SampleStore.open(sqlite_url) as store:
        (done,) = import_path(store.run("one"), file, strict=True).files
        assert (done.kind, done.rollout_id) == ("train", 40)
        assert "step{rollout_id}.pt" in done.notes[0] and "--kind eval" in done.notes[0]
        (done,) = import_path(store.run("two"), file, kind="eval").files
        assert (done.kind, done.notes) == ("eval", ())
        with pytest.raises(InvalidDumpError, match="no eval dump"):
            import_path(store.run("three"), saved(tmp_path / "more" / "1.pt", dump_of([])).parent, kind="eval")
        saved(tmp_path / "step41.pt", dump_of([make_sample(0)], 41))
        assert [each.kind for each in import_path(store.run("four"), tmp_path).files] == ["eval", "train"]


def test_a_folder_is_listed_once_however_many_dumps_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Any] = []
    for number in range(300):
        saved(tmp_path / f"retrieval_{number}.pt", {"rollout_id": number, "samples": []})
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or listdir(path))
    files = find_dumps(tmp_path)
    with SampleStore.open(":memory:") as store:
        for file in files[:5]:
            assert import_any(store.run("run"), file)[0].rollout_id is not None
    assert len(files) == 300 and listed.count(tmp_path) == 1


def test_a_number_beside_may_have_a_digit_before_it(tmp_path: Path) -> None:
    (tmp_path / "317_step_12.pt").touch()
    neighbours = Neighbours()
    path = tmp_path / "3eval_9_step_12.pt"
    assert neighbours.has(path, "3", "_step_12.pt") and neighbours.has(path, "", "_step_12.pt")
    assert not neighbours.has(path, "317", "_step_12.pt")
