"""``slime-store import`` and ``slime-store export pt``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from slime_store.interchange import read_dump
from slime_store.testing import assert_same, make_eval_output, make_sample, make_train_output
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from slime_store.types import Record, RolloutFnTrainOutput, Sample
from tests.cli.conftest import Command
from tests.interchange.archives import dump_of, saved


@pytest.fixture
def details(tmp_path: Path) -> Path:
    """A folder as --dump-details leaves it: rollouts 1 and 2, and an eval."""
    folder = tmp_path / "details"
    for rollout_id in (1, 2):
        output = make_train_output(1, 2, seed=rollout_id)
        saved(folder / "rollout_data" / f"{rollout_id}.pt", dump_of(output.samples, rollout_id))
    samples = make_eval_output({"gsm8k": 2}).data["gsm8k"]["samples"]
    saved(folder / "rollout_data" / "eval_1.pt", dump_of(samples, 1))
    return folder


def test_a_folder_comes_in_once(command: Command, details: Path, store_url: str) -> None:
    done = command("import", str(details), "--run", "r", "--format", "json")
    assert done.exit_code == 0 and done.stderr == ""
    rows = json.loads(done.stdout)
    assert [(row["action"], row["kind"], row["rollout_id"], row["attempt"], row["n_samples"]) for row in rows] == [
        ("recorded", "train", 1, 1, 2),
        ("recorded", "eval", 1, 1, 4),
        ("recorded", "train", 2, 1, 2),
    ]
    again = command("import", str(details), str(details / "rollout_data" / "1.pt"), "--run", "r", "--format", "csv")
    assert [row["action"] for row in csv.DictReader(io.StringIO(again.stdout))] == ["skipped"] * 3
    with opened(store_url, read_only=True) as store:
        assert [(info.name, info.n_rollouts) for info in store.runs()] == [("r", 3)]
    assert_same(loaded_train(store_url, 2, "r", sample_type=Sample).samples, make_train_output(1, 2, seed=2).samples)


def test_one_kind_can_be_chosen(command: Command, details: Path) -> None:
    done = command("import", str(details), "--run", "r", "--kind", "eval")
    assert done.exit_code == 0 and "eval_1.pt" in done.stdout and " train " not in done.stdout


def test_a_folder_without_any_of_the_chosen_kind_is_an_error_and_the_others_are_taken_in(
    command: Command, details: Path, tmp_path: Path
) -> None:
    saved(tmp_path / "words" / "medieval_12.pt", dump_of([make_sample(0)], 12))
    for others, n in ([], 0), ([str(details)], 1):
        done = command("import", *others, str(tmp_path / "words"), "--run", "r", "--kind", "eval", "--format", "json")
        assert done.exit_code == 4
        assert f"{tmp_path / 'words'}: the folder holds no eval dump (*.pt)" in done.stderr
        assert [row["action"] for row in json.loads(done.stdout)] == ["recorded"] * n


def test_files_that_fail_are_told_in_one_line_each_and_the_rest_is_done(command: Command, details: Path) -> None:
    bad = details / "rollout_data" / "3.pt"
    bad.write_bytes(b"hello")
    saved(details / "rollout_data" / "4.pt", dump_of([make_sample(0)], 4))
    done = command("import", str(details), "--run", "r")
    assert done.exit_code == 1
    assert done.stderr == f"error: {bad}: it is not a file of torch.save\n"
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["action", *["recorded"] * 3, "failed", "recorded"]


def test_what_is_unusual_is_a_warning_or_with_strict_an_error(command: Command, tmp_path: Path) -> None:
    content = dump_of([make_sample(0)], 7)
    content["samples"][0]["status"] = "quarantined"
    file = str(saved(tmp_path / "7.pt", content))
    strict = command("import", file, "--run", "r", "--strict")
    assert strict.exit_code == 1 and "sample 0: its status 'quarantined'" in strict.stderr
    lenient = command("import", file, "--run", "r")
    assert lenient.exit_code == 0
    assert lenient.stderr.startswith(f"warning: {file}: sample 0: its status 'quarantined' is not one of slime's")


def test_a_path_that_is_not_there_makes_no_store(command: Command, tmp_path: Path) -> None:
    done = command("import", str(tmp_path / "nowhere"), "--run", "r", store=str(tmp_path / "new.db"))
    assert done.exit_code == 4 and done.stderr == f"error: {tmp_path / 'nowhere'}: there is no such file or folder\n"
    assert list(tmp_path.iterdir()) == [] or not (tmp_path / "new.db").exists()


def test_rollouts_go_out_as_files(command: Command, store_url: str, tmp_path: Path) -> None:
    with run_of(store_url, "r") as run:
        for rollout_id in (9, 10, 11):
            run.record_train(rollout_id, make_train_output(1, 2, seed=rollout_id))
        run.record_train(10, make_train_output(1, 3, seed=0))
        run.record_eval(10, make_eval_output())
    template = str(tmp_path / "out" / "{rollout_id}.pt")
    done = command("export", "pt", "--run", "r", "--rollout-ids", "10:20", "--out", template, "--format", "json")
    assert done.exit_code == 0 and done.stderr == ""
    rows = json.loads(done.stdout)
    assert [(row["kind"], row["rollout_id"], row["attempt"]) for row in rows] == [
        ("train", 10, 2),
        ("train", 11, 1),
        ("eval", 10, 1),
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["10.pt", "11.pt", "eval_10.pt"]
    first = command("export", "pt", "--run", "r", "--kind", "train", "--attempt", "1", "--rollout-ids", "10", "--out",
                    str(tmp_path / "one.pt"))  # fmt: skip
    assert first.exit_code == 0
    assert_same(read_dump(tmp_path / "one.pt").output, make_train_output(1, 2, seed=10))


def test_what_cannot_be_exported_is_told_in_one_line(command: Command, store_url: str, tmp_path: Path) -> None:
    sample = Sample()
    sample.adapter = Record("app:Adapter", "dataclass", {"slot": 3})  # type: ignore[attr-defined]
    with run_of(store_url, "r") as run:
        run.record_train(1, RolloutFnTrainOutput([[sample]]))
        run.record_train(2, make_train_output(1, 1))
    out = str(tmp_path / "one.pt")
    cases: list[tuple[list[str], int, str]] = [
        (["--run", "r", "--out", out], 4, "need {rollout_id}"),
        (["--run", "r", "--rollout-ids", "7", "--out", out], 4, "slime-store rollout list"),
        (["--run", "nobody", "--out", out], 3, "it holds 'r'; see `slime-store run list`"),
        (["--run", "r", "--rollout-ids", "9:3", "--out", out], 2, "empty range"),
        (["--run", "r", "--rollout-ids", "1", "--out", str(tmp_path / "x" / "\0.pt")], 4, "cannot export"),
    ]
    for arguments, code, text in cases:
        done = command("export", "pt", *arguments)
        assert (done.exit_code, done.stdout) == (code, "") and text in done.stderr
        assert code == 2 or (done.stderr.startswith("error: ") and done.stderr.count("\n") == 1)
    assert not Path(out).exists()
    warned: Any = command("export", "pt", "--run", "r", "--rollout-ids", "1", "--out", out)
    assert warned.exit_code == 0 and "sample 0, adapter: only slime_store knows its class" in warned.stderr


def test_names_of_files_do_not_command_the_terminal(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "\x1b]0;title\x07.pt").write_bytes(b"no dump")
    done = command("import", str(folder), "--run", "r")
    assert done.exit_code == 1
    assert "error: " in done.stderr and "title" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr and "\x07" not in done.stdout + done.stderr
