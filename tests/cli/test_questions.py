"""``slime-store rewards``, ``eval``, ``group``, ``prompt``, ``run show`` and ``rollout show``."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample
from slime_store.dataframes import eval_compare_df, eval_compare_summary_df
from slime_store.testing import make_sample
from slime_store.testing.contract.opening import opened, run_of
from tests.cli.conftest import Command


def _eval(rewards: dict[str, list[float]], version: str) -> RolloutFnEvalOutput:
    """One dataset; each prompt has several rewards."""
    samples = [
        Sample(index=i, prompt=name, response=f"{name} {reward}", reward=reward, response_length=4)
        for i, (name, reward) in enumerate((name, each) for name, some in rewards.items() for each in some)
    ]
    data = {"maths": {"rewards": [sample.reward for sample in samples], "samples": samples}}
    return RolloutFnEvalOutput(data, {"version": version})


@pytest.fixture
def filled(store_url: str) -> str:
    """Rollouts 0 to 2 by versions 1 and 2, and evals 0 and 2, which three prompts tell apart."""
    with opened(store_url) as store:
        run = store.run("r", config={"lr": 1e-6, "reward": math.nan})
        for rollout_id, version in ((0, "1"), (1, "2"), (2, "2")):
            groups = [
                [make_sample(i, group_index=0, reward=float(i % 2), weight_version=version) for i in range(4)],
                [make_sample(i, group_index=1, reward=1.0, weight_version=version) for i in range(4)],
            ]
            groups[0][0].status = Sample.Status.TRUNCATED
            run.record_train(rollout_id, RolloutFnTrainOutput(groups, {"loss": rollout_id / 2, "note": "x"}))
        run.record_eval(0, _eval({"a": [0.0, 0.0], "b": [1.0, 1.0], "c": [1.0, 1.0]}, "1"), weight_version="1")
        run.record_eval(2, _eval({"a": [1.0, 1.0], "b": [1.0, 1.0], "c": [0.0, 0.0]}, "2"), weight_version="2")
    return store_url


def rows_of(command: Command, *words: str) -> list[dict[str, Any]]:
    done = command(*words, "--format", "json")
    assert done.exit_code == 0, (done.stderr, done.exception)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_rewards_by_weight_version(command: Command, filled: str, tmp_path: Path) -> None:
    rows = rows_of(command, "rewards", "r", "--kind", "train")
    assert [(row["weight_version"], row["n_samples"], row["reward_mean"]) for row in rows] == [
        ("1", 8, 0.75),
        ("2", 16, 0.75),
    ]
    (row,) = rows_of(command, "rewards", "r", "--status", "truncated", "--weight-version", "2", "--by", "label")
    assert (row["n_samples"], row["reward_mean"], row["session"]) == (2, 0.0, None)
    chosen = command("rewards", "r", "--columns", "weight_version,reward_mean", "--kind", "train", "--chart")
    assert chosen.stdout.splitlines()[:3] == ["weight_version  reward_mean", "1                      0.75",
                                              "2                      0.75"]  # fmt: skip
    assert "mean reward by weight version, train" in chosen.stdout and "┤" in chosen.stdout
    assert "┤" not in command("rewards", "r").stdout and "n_nan" not in command("rewards", "r").stdout


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures(command: Command, filled: str, tmp_path: Path, suffix: str) -> None:
    for words in (["rewards", "r"], ["eval", "show", "r"]):
        picture = tmp_path / f"{words[0]}.{suffix}"
        done = command(*words, "--plot", str(picture))
        assert done.exit_code == 0, done.exception
        assert picture.read_bytes()[:5] == (b"\x89PNG\r" if suffix == "png" else b"<?xml")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_picture_that_cannot_be_drawn_stops_the_command_before_its_work(
    command: Command, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = command("rewards", "r", "--plot", str(tmp_path / "x.jpeg"))
    assert wrong.exit_code == 2 and "ends with .png, .svg or .pdf" in wrong.stderr and wrong.stdout == ""
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    missing = command("eval", "show", "r", "--plot", str(tmp_path / "x.png"))
    assert missing.exit_code == 4 and "pip install 'slime-store[plot]'" in missing.stderr and missing.stdout == ""


def test_evals_are_shown(command: Command, filled: str) -> None:
    rows = rows_of(command, "eval", "show", "r", "-k", "1", "-k", "2")
    assert [row["reward_mean"] for row in rows] == pytest.approx([2 / 3, 2 / 3])
    assert [row["pass_at_2"] for row in rows] == pytest.approx([2 / 3, 2 / 3])
    assert [(row["rollout_id"], row["dataset"], row["weight_version"]) for row in rows] == [
        (0, "maths", "1"),
        (2, "maths", "2"),
    ]
    head = command("eval", "show", "r").stdout.splitlines()[0].split()
    assert "pass_at_2" in head and "pass_at_8" not in head and not {"run", "session"} & set(head)
    nothing = command("eval", "show", "r", "--dataset", "none")
    assert (nothing.exit_code, len(nothing.stdout.splitlines()), nothing.stderr) == (0, 1, "no rows\n")
    with run_of(filled, "r") as run:  # another session, whose labels begin anew
        run.record_eval(3, run.load_eval(0))
    assert command("eval", "show", "r").stdout.split()[0] == "session"


def test_two_evals_are_compared(command: Command, filled: str) -> None:
    table = command("eval", "compare", "r", "0", "2")
    assert table.exit_code == 0, table.exception
    summary, flips = table.stdout.split("\n\n")
    values = dict(zip(*[line.split() for line in summary.splitlines()], strict=True))
    assert (values["n_prompts"], values["n_gained"], values["n_lost"], values["n_same"]) == ("3", "1", "1", "1")
    assert [line.split()[-1] for line in flips.splitlines()[1:]] == ["gained", "lost"]
    rows = rows_of(command, "eval", "compare", "r", "0", "2")
    assert [(row["before"], row["after"], row["flip"]) for row in rows] == [
        (0.0, 1.0, "gained"),
        (1.0, 1.0, "same"),
        (1.0, 0.0, "lost"),
    ]
    lost = command("eval", "compare", "r", "0", "2", "--flips", "lost", "--columns", "prompt,delta", "--format", "csv")
    assert list(csv.reader(io.StringIO(lost.stdout))) == [["prompt", "delta"], ["c", "-1.0"]]
    assert command("eval", "compare", "r", "0", "0").stdout.endswith("no prompt flipped\n")
    none = command("eval", "compare", "r", "0", "7")
    assert none.exit_code == 3 and "slime-store rollout list r --kind eval" in none.stderr


def test_evals_are_exported(command: Command, filled: str, tmp_path: Path) -> None:
    import duckdb

    file = tmp_path / "evals.parquet"
    done = command("eval", "export", "r", "--out", str(file))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"{file}: 12 rows\n"), done.exception
    query = f"SELECT rollout_id, avg(eval_reward), count(*) FROM '{file}' GROUP BY rollout_id ORDER BY rollout_id"
    assert duckdb.sql(query).fetchall() == [(0, pytest.approx(2 / 3), 6), (2, pytest.approx(2 / 3), 6)]
    lines = command(
        "eval", "export", "r", "--format", "jsonl", "--rollout-ids", "2", "--columns", "response", "--out", "-"
    )
    assert json.loads(lines.stdout.splitlines()[0]) == {"response": "a 1.0"} and lines.stderr == ""
    refused = command("eval", "export", "r", "--out", "-")
    assert refused.exit_code == 2 and "Parquet needs a file" in refused.stderr


def test_groups_and_prompts(command: Command, filled: str) -> None:
    groups = rows_of(command, "group", "list", "r", "--kind", "train")
    assert [(row["rollout_id"], row["group_index"], row["zero_std"]) for row in groups][:2] == [
        (0, 0, False),
        (0, 1, True),
    ]
    alike = rows_of(command, "group", "list", "r", "--kind", "train", "--zero-std", "--columns", "rollout_id,prompt_id")
    assert [row["rollout_id"] for row in alike] == [0, 1, 2] and list(alike[0]) == ["rollout_id", "prompt_id"]
    history = rows_of(command, "prompt", "list", "r", "--prompt-id", alike[0]["prompt_id"])
    assert [(row["kind"], row["rollout_id"], row["reward_mean"]) for row in history] == [
        ("train", 0, 1.0),
        ("train", 1, 1.0),
        ("train", 2, 1.0),
    ]
    assert len(rows_of(command, "prompt", "list", "r", "--prompt", "a")) == 2


def test_a_run_is_shown(command: Command, filled: str) -> None:
    text = command("run", "show", "r").stdout
    for part in ("run r", "3 rollouts (0 to 2), 24 samples", "2 rollouts (0 to 2), 12 samples", "lr: 1e-06"):
        assert part in text
    assert "reward: nan" in text and "── sessions ─" in text and "training reward by weight version" in text
    shown = json.loads(command("run", "show", "r", "--format", "json").stdout)
    assert shown["config"] == {"lr": 1e-6, "reward": "nan"} and shown["train"]["n_rollouts"] == 3
    assert [row["n_rollouts"] for row in shown["sessions"]] == [5] and len(shown["weight_versions"]) == 2
    with run_of(filled, "empty"):
        pass
    empty = command("run", "show", "empty")
    assert empty.exit_code == 0 and "no rollouts" in empty.stdout and "config" not in empty.stdout


def test_a_rollout_is_shown(command: Command, filled: str) -> None:
    text = command("rollout", "show", "r", "1").stdout
    for part in ("8 in 2 groups", "1 truncated, 7 completed", "8 2\n", "mean 0.75", "loss: 0.5", "note: x"):
        assert part in text, part
    assert "2 groups, 1 with equal rewards" in text
    shown = json.loads(command("rollout", "show", "r", "1", "--format", "json").stdout)
    assert shown["statuses"] == {"truncated": 1, "completed": 7} and len(shown["groups"]) == 2
    evaluation = command("rollout", "show", "r", "2", "--kind", "eval").stdout
    assert "3 prompts, 3 with equal rewards" in evaluation and "maths" in evaluation
    assert command("rollout", "show", "r", "9").exit_code == 3
    assert command("rollout", "show", "r", "1", "--attempt", "2").exit_code == 3


def test_l7_metrics_that_are_no_numbers_are_shown_and_numbers_are_columns(command: Command, store_url: str) -> None:
    metrics = {"a": torch.tensor(1.0), "b": np.float32(2), "c": [1, 2], "d": "x\n\x1b", "e": True, "f": math.nan}
    with run_of(store_url, "r") as run:
        run.record_train(0, RolloutFnTrainOutput([[Sample()]], metrics))
        run.record_train(1, RolloutFnTrainOutput([[Sample()]], None))
    text = command("rollout", "show", "r", "0").stdout
    for line in ("  a: 1.0\n", "  b: 2.0\n", "  c: [1,2]\n", "  d: x \u241b\n", "  e: true\n", "  f: nan\n"):
        assert line in text, line
    assert "metrics" not in command("rollout", "show", "r", "1").stdout
    columns = "rollout_id,metrics.a,metrics.b,metrics.c,metrics.d,metrics.e"
    rows = rows_of(command, "rollout", "list", "r", "--columns", columns)
    assert list(rows[0].values()) == [0, 1.0, 2.0, None, None, 1.0]
    assert set(rows[1].values()) == {1, None}
    assert json.loads(command("rollout", "show", "r", "0", "--format", "json").stdout)["metrics"]["f"] == "nan"


def test_rollouts_are_listed_with_their_metrics(command: Command, filled: str) -> None:
    rows = rows_of(command, "rollout", "list", "r", "--kind", "train", "--columns", "rollout_id,metrics.loss")
    assert [(row["rollout_id"], row["metrics.loss"]) for row in rows] == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert command("rollout", "list", "r", "--limit", "1").stderr == "4 more; --limit 0 shows all\n"
    assert command("rollout", "list", "r", "--attempts", "--columns", "rollout_id").exit_code == 2


def test_columns_of_pass_at_k_may_be_chosen(command: Command, filled: str) -> None:
    for words in (("eval", "show"), ("group", "list")):
        done = command(*words, "r", "--columns", "rollout_id,pass_at_1,pass_at_3", "--format", "csv")
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[0] == "rollout_id,pass_at_1,pass_at_3"
        assert command(*words, "r", "--columns", "pass_at_0").exit_code == 2
    assert command("eval", "show", "r", "-k", "1000000000000").exit_code == 0


def test_a_path_is_a_column_though_commas_are_in_it(command: Command, sqlite_url: str) -> None:
    with run_of(sqlite_url, "r") as run:
        sample = Sample(reward={"nest": {"x": 2.5}, "a,b": 1.0}, metadata={"[odd": "text", "k,l": 1})
        run.record_train(0, RolloutFnTrainOutput([[sample]], metrics={"eval": {"acc": 0.5}}))
    names = 'reward.["nest", "x"],metadata.[odd, reward.["a,b"],metadata.["k,l"],position'
    done = command("sample", "list", "r", "--columns", names, "--format", "json", store=sqlite_url)
    assert list(json.loads(done.stdout)[0].values()) == [2.5, "text", 1.0, "1", 0], done.output
    done = command("rollout", "list", "r", "--columns", 'metrics.["eval","acc"]', "--format", "csv", store=sqlite_url)
    assert done.stdout.splitlines()[1] == "0.5"


@pytest.mark.parametrize(
    "words",
    [
        ("rollout", "show", "r", "9" * 22),
        ("rollout", "show", "r", "0", "--attempt", "9" * 22),
        ("sample", "show", "r", "0", "9" * 22),
        ("sample", "show", "r", "9" * 22, "0"),
        ("sample", "list", "r", "--attempt", "9" * 22),
        ("eval", "compare", "r", "0", "9" * 22),
        ("eval", "compare", "r", "0", "2", "--threshold", "nan"),
        ("eval", "show", "r", "--threshold", "nan"),
        ("run", "show", ""),
        ("run", "show", "\udcff"),
        ("export", "csv", "--run", "\udcff", "--out", "x.csv"),
    ],
)
def test_what_no_store_can_hold_is_wrong_usage(command: Command, sqlite_url: str, words: tuple[str, ...]) -> None:
    with run_of(sqlite_url, "r"):
        pass
    done = command(*words, store=sqlite_url)
    assert done.exit_code == 2 and "Error: Invalid value" in done.stderr, done.exception


def test_a_limit_may_be_any_number(command: Command, filled: str) -> None:
    for form in ("table", "csv", "json"):
        assert command("sample", "list", "r", "--limit", "9" * 22, "--format", form).exit_code == 0


def test_evals_are_compared_at_one_moment(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    with run_of(sqlite_url) as run:
        for rollout_id in (0, 1):
            run.record_eval(rollout_id, _eval({"p": [float(rollout_id)]}, "1"))
        reading = type(run._handle).reading
        monkeypatch.setattr(type(run._handle), "reading", lambda handle: begun.append(1) or reading(handle))
        frame = eval_compare_df(run, np.int64(0), np.int64(1), columns=["flip", "prompt"])
    assert frame.values.tolist() == [["gained", "p"]] and len(begun) == 1


@pytest.mark.filterwarnings("error")
def test_infinite_rewards_can_be_compared(sqlite_url: str) -> None:
    with run_of(sqlite_url) as run:
        for rollout_id in (0, 1):
            run.record_eval(rollout_id, _eval({"p": [math.inf], "q": [-math.inf], "r": [1e308]}, "1"))
        (row,) = eval_compare_summary_df(run, 0, 1).to_dict("records")
    assert (row["n_prompts"], row["n_same"]) == (3, 3) and math.isnan(row["delta_mean"])


def test_evals_without_a_common_dataset_are_not_said_to_be_alike(command: Command, filled: str) -> None:
    assert "no dataset 'aime' in common" in command("eval", "compare", "r", "0", "2", "--dataset", "aime").stdout
    assert "no prompt was" not in command("eval", "compare", "r", "0", "2", "--dataset", "x", "--flips", "lost").stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [("run", "list"), ("run", "list", "--format", "csv"), ("run", "show", "r")])
def test_a_stdout_that_takes_nothing_more_is_an_error_in_one_line(sqlite_url: str, words: tuple[str, ...]) -> None:
    with run_of(sqlite_url, "r"):
        pass
    program = [sys.executable, "-m", "slime_store.cli", "--store", sqlite_url, *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (4, "error: cannot write what was found: No space left on device\n")
