"""``slime-store sample list`` and ``sample show``, and the options of the filter."""

from __future__ import annotations

import csv
import io
import json
import math
from fractions import Fraction
from typing import Any

import click
import pytest

from slime_store import RolloutFnEvalOutput, RolloutFnTrainOutput, Sample, SampleFilter
from slime_store.cli.filters import filter_options
from slime_store.testing import make_eval_output, make_train_output
from slime_store.testing.contract.opening import run_of
from tests.cli.conftest import Command
from tests.services.commands import invoke


@pytest.fixture
def filled(store_url: str) -> str:
    with run_of(store_url, "r") as run:
        run.record_train(1, make_train_output(2, 4, seed=1, weight_version="1"))
        output = make_train_output(2, 4, seed=2, first_group_index=2, weight_version="2")
        for i, sample in enumerate(output.samples[0]):
            sample.status = Sample.Status.TRUNCATED
            sample.metadata = {"n": i, "tag": "a\x00b" if i == 0 else "b", "odd": math.nan}
        run.record_train(2, output)
        run.record_eval(2, make_eval_output())
    return store_url


def rows_of(command: Command, *options: str) -> list[dict[str, Any]]:
    done = command("sample", "list", "r", "--format", "json", *options)
    assert done.exit_code == 0, (done.stderr, done.exception)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_samples_are_listed(command: Command, filled: str) -> None:
    rows = rows_of(command)
    assert len(rows) == 26 and list(rows[0])[:4] == ["kind", "rollout_id", "position", "dataset"]
    table = command("sample", "list", "r", "--limit", "5")
    assert len(table.stdout.splitlines()) == 6 and "dataset" not in table.stdout
    assert table.stderr == "21 more; --limit 0 shows all\n"
    assert command("sample", "list", "r", "--limit", "26").stderr == ""
    assert command("sample", "list", "r", "--limit", "0").stderr == ""
    assert len(rows_of(command, "--limit", "3")) == 3
    done = command("sample", "list", "r", "--status", "truncated", "--format", "csv", "--columns", "index,metadata.tag")
    assert list(csv.reader(io.StringIO(done.stdout)))[:2] == [["index", "metadata.tag"], ["8", "a\u2400b"]]
    empty = command("sample", "list", "r", "--group-index", "99")
    assert empty.exit_code == 0 and len(empty.stdout.splitlines()) == 1
    wrong = command("sample", "list", "r", "--columns", "rewrd")
    assert wrong.exit_code == 2 and "no column 'rewrd'; it has" in wrong.stderr


@pytest.mark.parametrize(
    ("options", "conditions"),
    [
        (["--kind", "eval", "--dataset", "aime", "--dataset", "gsm8k"], {"kind": "eval", "dataset": ("aime", "gsm8k")}),
        (["--rollout-ids", "2:", "--attempt", "1"], {"rollout_ids": "2:", "attempt": 1}),
        (["--status", "truncated", "--status", "failed"], {"status": ("truncated", "failed")}),
        (["--weight-version", "2", "--weight-version-rule", "last"],
         {"weight_version": "2", "weight_version_rule": "last"}),
        (["--reward-min", "0.5", "--reward-max", "1"], {"reward_min": 0.5, "reward_max": 1.0}),
        (["--reward-key", "a", "--reward-key", "b"], {"reward_key": ("a", "b")}),
        (["--group-index", "2"], {"group_index": 2}),
        (["--metadata", "n=1", "--metadata", "n=2", "--metadata", "tag=b"],
         {"metadata": {"n": (1, "1", 2, "2"), "tag": ("b",)}}),
        (["--text", "sum of"], {"text": "sum of"}),
        (["--prompt", "What is it?"], {"prompt": "What is it?"}),
        (["--prompt", '[{"role": "user", "content": "x"}]'], {"prompt": [{"role": "user", "content": "x"}]}),
        (["--prompt", "[unfinished"], {"prompt": "[unfinished"}),
        (["--removed"], {"removed": True}),
        (["--kept"], {"removed": False}),
        (["--response-length-min", "2", "--response-length-max", "9"],
         {"response_length_min": 2, "response_length_max": 9}),
        (["--prompt-id", "00FF00ff00ff00ff"], {"prompt_id": "00ff00ff00ff00ff"}),
        ([], {}),
    ],
)  # fmt: skip
def test_every_option_is_the_condition_of_that_name(options: list[str], conditions: dict[str, Any]) -> None:
    seen: list[SampleFilter] = []

    @click.command()
    @filter_options()
    def probe(where: SampleFilter) -> None:
        seen.append(where)

    assert probe.main(options, standalone_mode=False) is None
    assert seen == [SampleFilter(**conditions)]


def test_the_filter_has_an_option_for_each_condition() -> None:
    @filter_options()
    def probe(where: SampleFilter) -> None: ...

    assert {option.name for option in click.command()(probe).params} == set(vars(SampleFilter()))


def test_conditions_that_make_no_sense_are_wrong_usage(command: Command, filled: str) -> None:
    for options, text in (
        (["--reward-min", "2", "--reward-max", "1"], "reward_min 2.0 is above reward_max 1.0"),
        (["--metadata", "n"], "--metadata is KEY=VALUE, not 'n'"),
        (["--prompt-id", "xyz"], "prompt_id is text of 16 hex digits"),
        (["--rollout-ids", "9:3"], "empty range"),
    ):
        done = command("sample", "list", "r", *options)
        assert done.exit_code == 2 and text in done.stderr and done.stdout == ""


def test_filters_find_what_they_should(command: Command, filled: str) -> None:
    assert len(rows_of(command, "--metadata", "n=3", "--rollout-ids", "2")) == 1
    assert len(rows_of(command, "--metadata", "n=3", "--metadata", "n=1")) == 2
    assert len(rows_of(command, "--weight-version", "2", "--kind", "train")) == 8
    assert len(rows_of(command, "--dataset", "aime")) == 4
    assert {row["status"] for row in rows_of(command, "--status", "truncated")} == {"truncated"}


def test_a4_the_text_behind_a_nul_is_found(command: Command, store_url: str) -> None:
    samples = [
        Sample(index=0, response="ok\x00tail", prompt="p\x00head"),
        Sample(index=1, response="50% _done_"),
        Sample(index=2, prompt=[{"role": "user", "content": "in a chat\x00 as well"}]),
    ]
    with run_of(store_url, "r") as run:
        run.record_train(0, RolloutFnTrainOutput([samples]))
    for text, found in (("tail", [0]), ("head", [0]), ("0% _d", [1]), ("as well", [2]), ("TAIL", []), ("user", [2])):
        assert [row["index"] for row in rows_of(command, "--text", text)] == found, text


def test_sorting(command: Command, filled: str) -> None:
    rows = rows_of(command, "--sort", "index", "--desc", "--limit", "2", "--kind", "train")
    assert [row["index"] for row in rows] == [15, 14]
    table = command("sample", "list", "r", "--sort", "reward", "--limit", "5")
    assert table.stderr == "21 more; --limit 0 shows all\n"
    wrong = command("sample", "list", "r", "--sort", "prompt")
    assert wrong.exit_code == 2 and "not among the columns" in wrong.stderr


def chat_sample() -> Sample:
    content = [{"type": "image"}, {"type": "text", "text": "What is on it?\x1b[2J"}]
    sample = Sample(
        index=4,
        prompt=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}],
        tokens=[11, 12, 13, 900, 901],
        response="A cat\nand a dog, half \ud83d",
        response_length=2,
        reward={"accuracy": 1.0, "format": math.nan},
        label={"animals": 2},  # type: ignore[arg-type]
        weight_versions=["7", "8"],
        rollout_log_probs=[-0.001, -math.inf],
        loss_mask=[1, 0],
        metadata={"source": "made up", "where": {"page": (1, 2)}},
        status=Sample.Status.TRUNCATED,
        remove_sample=True,
    )
    sample.tool_calls = 3  # type: ignore[attr-defined]
    return sample


def test_a_sample_is_shown_readably(command: Command, store_url: str) -> None:
    with run_of(store_url, "r") as run:
        run.record_train(5, RolloutFnTrainOutput([[Sample(), chat_sample()]]))
        run.record_eval(5, RolloutFnEvalOutput({"cats": {"samples": [chat_sample()], "rewards": [1.0]}}))
    done = command("sample", "show", "r", "5", "1", "--tokens")
    assert done.exit_code == 0 and done.stderr == "", done.exception
    text = done.stdout
    for part in (
        "train rollout 5, sample 1, run r",
        "truncated, not for training",
        '{"accuracy":1.0,"format":"nan"}',
        '{"animals":2}',
        "7, 8",
        "5: prompt 3, response 2",
        "1 of 2 response tokens count",
        "source: made up",
        'where: {"page":[1,2]}',
        "tool_calls: 3",
        "── system ─",
        "Be brief.",
        '[{"type":"image"}]\nWhat is on it?\u241b[2J',
        "A cat\nand a dog, half \ufffd",
        "── prompt tokens ",
        "11 12 13\n",
        "900 901\n",
        "log-probs of 2 tokens: mean -0.001, lowest -0.001",
        "█▁",
    ):
        assert part in text, part
    assert "\x1b" not in text and "11 12 13" not in command("sample", "show", "r", "5", "1").stdout
    shown = command("sample", "show", "r", "5", "0", "--kind", "eval").stdout
    assert "eval rollout 5, sample 0 of cats, run r" in shown
    bare = command("sample", "show", "r", "5", "0")
    assert bare.exit_code == 0 and "log-probs" not in bare.stdout and "pending" in bare.stdout


def test_a_sample_is_shown_as_json(command: Command, store_url: str) -> None:
    with run_of(store_url, "r") as run:
        run.record_train(5, RolloutFnTrainOutput([[chat_sample()]]))
    shown = json.loads(command("sample", "show", "r", "5", "0", "--format", "json").stdout)
    assert (shown["rollout_id"], shown["position"], shown["tokens"]) == (5, 0, [11, 12, 13, 900, 901])
    assert shown["extra"] == {"tool_calls": 3} and shown["rollout_log_probs"] == [-0.001, "-inf"]


def test_samples_with_odd_values_are_shown_all_the_same(command: Command, store_url: str) -> None:
    odd = Sample(prompt=7, response=None, reward="good", tokens="x", loss_mask=[[1]], metadata=[1, 2])  # type: ignore[arg-type]
    odd.rollout_log_probs = ["a", None]  # type: ignore[list-item]
    odd.response_length = "two"  # type: ignore[assignment]
    odd.weight_versions = [3, None]  # type: ignore[list-item]
    long = Sample(rollout_log_probs=[-0.5] * 5000, response_length=5000)
    with run_of(store_url, "r") as run:
        run.record_train(0, RolloutFnTrainOutput([[odd, long]]))
    done = command("sample", "show", "r", "0", "0")
    assert done.exit_code == 0 and "metadata  [1,2]" in done.stdout, done.exception
    shown = command("sample", "show", "r", "0", "1").stdout
    assert "7 tokens in each block" in shown and shown.count("▅") == 715
    assert command("sample", "list", "r").exit_code == 0


def test_what_is_not_there_is_told_in_one_line(command: Command, filled: str) -> None:
    for words, text in (
        (["r", "2", "8"], "they are 0 to 7; see `slime-store sample list r --kind train --rollout-ids 2`"),
        (["r", "9", "0"], "see `slime-store rollout list r --kind train`"),
        (["nobody", "9", "0"], "see `slime-store run list`"),
    ):
        done = command("sample", "show", *words)
        assert done.exit_code == 3 and done.stdout == "" and done.stderr.count("\n") == 1 and text in done.stderr
    assert invoke("sample", "show", "r", "x", "0").exit_code == 2


def test_numbers_of_thousands_of_digits_are_shown(command: Command, store_url: str) -> None:
    huge = 10**5000
    sample = Sample(index=huge, group_index=huge, rollout_id=huge, response_length=huge)
    vars(sample).update(prompt=[{"role": huge, "content": huge}], response=huge, weight_versions=[huge])
    sample.metadata = {"n": huge, "fraction": Fraction(huge, 3)}
    with run_of(store_url, "r") as run:
        run.record_train(0, [[sample]])
    for form in ("text", "json"):
        done = command("sample", "show", "r", "0", "0", "--format", form)
        assert done.exit_code == 0, (done.stderr, done.exception)
        assert f"{huge:x}" in done.stdout and "<Fraction>" in done.stdout


def test_runs_are_completed(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import BashComplete

    from slime_store.cli.root import cli

    def completed(words: str) -> list[str]:
        complete = BashComplete(cli, {}, "slime-store", "_SLIME_STORE_COMPLETE")
        return [item.value for item in complete.get_completions(words.split(), "")]

    with run_of(filled, "other"):
        pass
    assert completed(f"--store {filled} sample list") == ["r", "other"]
    assert completed("--store /nowhere/at.all sample list") == []
    monkeypatch.setenv("SLIME_STORE_URL", filled)
    assert completed("export csv --run") == ["r", "other"]
    assert "truncated" in completed("sample list --status")


def test_a_sample_whose_arrays_were_pruned_is_shown_without_them(command: Command, filled: str) -> None:
    with run_of(filled, "r") as run:
        run.record_train(3, make_train_output(1, 2))
        run.prune(keep_arrays_last=1)
    done = command("sample", "show", "r", "1", "0")
    assert done.exit_code == 0 and "── response ─" in done.stdout and "log-probs" not in done.stdout, done.stderr
    assert "tokens    pruned, response " in done.stdout and "0: prompt" not in done.stdout
    assert done.stderr.startswith("warning: the arrays of attempt 1 of train rollout 1 of run 'r' were pruned at ")
    refused = command("export", "jsonl", "--run", "r", "--out", "-")
    assert refused.exit_code == 4 and refused.stderr.endswith(
        "`export parquet|jsonl --fields reward,response,metadata` writes what is kept\n"
    )
    kept = command("export", "jsonl", "--run", "r", "--fields", "reward,response,metadata", "--out", "-")
    assert kept.exit_code == 0 and len(kept.stdout.splitlines()) == 28
    assert command("sample", "list", "r").exit_code == 0
