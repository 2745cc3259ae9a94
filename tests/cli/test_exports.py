"""``slime-store export parquet``, ``jsonl`` and ``csv``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from slime_store import RolloutFnTrainOutput, Sample
from slime_store.testing import make_eval_output, make_train_output
from slime_store.testing.contract.opening import run_of
from tests.cli.conftest import Command

NASTY = '=half \ud83d,\r\n"quoted"\u2028 tail\x00'


@pytest.fixture
def filled(store_url: str) -> str:
    with run_of(store_url, "r") as run:
        run.record_train(1, RolloutFnTrainOutput([[Sample(index=0, response=NASTY, reward=1.0), Sample(index=1)]]))
        run.record_train(2, make_train_output(1, 4))
        run.record_eval(2, make_eval_output({"aime": 1}))
    return store_url


def test_a6_l5_every_format_takes_every_text(command: Command, filled: str, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    for form in ("parquet", "jsonl", "csv"):
        out = tmp_path / f"x.{form}"
        done = command("export", form, "--run", "r", "--out", str(out))
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"{out}: 8 rows\n"), done.exception
    shown = '=half \ufffd,\r\n"quoted"\u2028 tail\u2400'
    assert pq.read_table(tmp_path / "x.parquet")["response"][0].as_py() == shown
    assert json.loads((tmp_path / "x.jsonl").read_text("utf-8").split("\n")[0])["response"] == shown
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and rows[0]["response"] == shown
    command("export", "csv", "--run", "r", "--csv-safe", "--out", str(tmp_path / "x.csv"))
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert next(csv.DictReader(file))["response"] == "'" + shown


def test_conditions_columns_templates_and_stdout(command: Command, filled: str, tmp_path: Path) -> None:
    done = command(
        "export", "jsonl", "--run", "r", "--kind", "eval", "--fields", "reward, metadata.source", "--out", "-"
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.stderr == "" and [line["metadata.source"] for line in lines] == ["made-up"] * 2
    assert lines[0]["dataset"] == "aime" and "response" not in lines[0]
    rows = list(csv.DictReader(io.StringIO(command("export", "csv", "--run", "r", "--out", "-").stdout)))
    assert len(rows) == 8
    done = command("export", "csv", "--run", "r", "--rollout-ids", "2", "--out", str(tmp_path / "o/{rollout_id}.csv"))
    assert [line.split(":")[0].rpartition("/")[2] for line in done.stderr.splitlines()] == ["2.csv", "eval_2.csv"]


def test_what_cannot_be_exported_is_told_in_one_line(command: Command, filled: str, tmp_path: Path) -> None:
    out = str(tmp_path / "x.parquet")
    cases = [
        (["parquet", "--run", "r", "--out", "-"], 2, "Parquet needs a file"),
        (["parquet", "--run", "r", "--fields", "rewrd", "--out", out], 2, "did you mean 'reward'"),
        (["parquet", "--run", "nobody", "--out", out], 3, "slime-store run list"),
        (["parquet", "--run", "r", "--out", str(tmp_path / "\0")], 4, "cannot export"),
    ]
    for words, code, text in cases:
        done = command("export", *words)
        assert (done.exit_code, done.stdout) == (code, "") and text in done.stderr, done.stderr
    assert not Path(out).exists()
    none = command("export", "parquet", "--run", "r", "--rollout-ids", "77", "--out", out)
    assert none.exit_code == 0 and none.stderr.endswith("warning: no sample meets the conditions\n")
    assert Path(out).exists()
