"""What a terminal is shown: widths, colours, charts, and text that must not command it."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest

from slime_store import RolloutFnTrainOutput, Sample
from slime_store.cli import output as output_module
from slime_store.cli.charts import column_chart, strip
from slime_store.cli.output import table_lines
from slime_store.cli.terminal import cut, one_line, pad, visible, width_of, wrapped
from slime_store.testing import make_train_output
from slime_store.testing.contract.opening import run_of

_STYLE = re.compile("\x1b\\[[0-9;]*m")


def test_widths_are_those_of_a_terminal() -> None:
    assert [width_of(text) for text in ("abc", "准确", "e\u0301", "")] == [3, 4, 1, 0]
    assert cut("abcdef", 4) == "abc…" and cut("准确率高", 5) == "准确…" and cut("准确", 4) == "准确"
    assert cut("准确率", 4) == "准…" and pad("准", 4) == "准  " and pad("7", 3, right=True) == "  7"


def test_text_cannot_command_a_terminal() -> None:
    assert visible("a\x1b[31mb\x07\x9b2J\x7f\r\n\tc") == "a\u241b[31mb\u2407\ufffd2J\u2421\u240d\n\tc"
    assert visible("\u202egnp.exe\u2066x\ud83d") == "\ufffdgnp.exe\ufffdx\ufffd"
    assert one_line(" a\n\r\n b\x1b ") == "a b\u241b"


@pytest.mark.parametrize("width", [10, 17, 40])
def test_lines_are_broken_at_blanks_and_nothing_is_lost(width: int) -> None:
    text = "准确 the quick  brown fox\n\njumps-over-the-lazy-dog-and-never-stops 42 " + "x" * 55
    lines = wrapped(text, width)
    assert all(width_of(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert wrapped("a b\nc", None) == ["a b", "c"]


def test_a_table_fits_where_it_must() -> None:
    columns = ["name", "reward_mean", "response_length_mean", "text"]
    rows: list[list[Any]] = [["准确" * 10, 0.123456, 1234567, "long " * 30], [None, None, 1, "x"]]
    whole = [_STYLE.sub("", line) for line in table_lines(columns, rows, None)]
    assert whole[0].split() == columns and len(whole) == 3 and "0.1235" in whole[1]
    for width in (30, 40, 60, 80, 120):
        lines = [_STYLE.sub("", line) for line in table_lines(columns, rows, width)]
        body = [line for line in lines if not line.startswith("no room for")]
        assert all(width_of(line) <= width for line in body), width
        assert any("1234567" in line for line in body) or lines[-1].startswith("no room for"), width
    assert "…" in "".join(table_lines(columns, rows, 60))
    names = list(table_lines(["dataset", "reward_mean", "reward_std"], [["reverse_3", 0.1234, 0.1234]], 24))
    assert names[2].split() == ["reverse_3", "0.1234"]  # the name is whole
    assert "no room for reward_std" in names[3]
    assert [_STYLE.sub("", line) for line in table_lines(columns, [], 80)][-1].split() == columns


def test_charts() -> None:
    chart = column_chart([0.0, 0.5, 1.0, None, float("nan")], width=40, height=2)
    assert [line.split("┤")[0].strip() for line in chart] == ["1", "0"]
    assert chart[0].rstrip().endswith("████") and chart[1].count("█") >= 8
    assert column_chart([None, float("nan")], width=40) == []
    assert column_chart([-1.7e308, 1.7e308, 0.0, float("inf")], width=40)
    assert column_chart([1.7e308] * 100, width=40)
    assert all(len(line) <= 40 for line in column_chart([i % 7 for i in range(1000)], width=40))
    assert len(column_chart([2.0, 2.0], width=20)) == 6
    assert strip([0.0, 0.5, 0.999, 1.0]) == "▁▅██"


@pytest.fixture
def nasty_url(sqlite_url: str) -> str:
    sample = Sample(prompt="p", response="red \x1b[31m准确 " * 20, reward=1.0, tokens=[5, 6, 7], response_length=2)
    sample.rollout_log_probs, sample.loss_mask = [-0.01, -5.0], [1, 1]
    with run_of(sqlite_url, "r") as run:
        run.record_train(0, RolloutFnTrainOutput([[sample] * 3]))
        run.record_train(1, make_train_output(40, 10, n_tokens=8))
    return sqlite_url


def on_terminal(url: str, *words: str, **environment: str) -> str:
    """Run the command with a terminal of 60 columns as its stdout and return what it wrote to it."""
    main, terminal = pty.openpty()
    variables = {**os.environ, "COLUMNS": "60", "TERM": "xterm", **environment}
    command = [sys.executable, "-m", "slime_store.cli", "--store", url, *words]
    with subprocess.Popen(command, stdout=terminal, stderr=subprocess.PIPE, env=variables) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            shown += part
    os.close(main)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n")


def test_on_a_terminal_there_are_colours_and_lines_fit(nasty_url: str) -> None:
    for words in (["sample", "show", "r", "0", "0"], ["sample", "list", "r", "--columns", "position,reward,response"]):
        shown = on_terminal(nasty_url, *words)
        assert _STYLE.search(shown) and "\x1b[31m准" not in shown and "\u241b[31m" in shown
        plain = [_STYLE.sub("", line) for line in shown.splitlines()]
        assert all(width_of(line) <= 60 for line in plain if "no room for" not in line)
        assert "\x1b" not in on_terminal(nasty_url, *words, NO_COLOR="1")


def test_a_chart_is_drawn_on_a_terminal_only(nasty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_of(nasty_url, "r") as run:
        run.record_train(2, make_train_output(2, 2, weight_version="2"))
    assert "┤" in on_terminal(nasty_url, "rewards", "r")
    assert "┤" not in on_terminal(nasty_url, "rewards", "r", "--no-chart")


def test_elsewhere_nothing_is_cut_and_a_closed_pipe_is_no_trouble(nasty_url: str) -> None:
    words = f"{sys.executable} -m slime_store.cli --store {nasty_url}"
    long = subprocess.run(
        shlex.split(f"{words} sample list r --columns position,response --limit 1"), capture_output=True, text=True
    )
    assert long.stdout.count("准确") == 20 and "\x1b" not in long.stdout
    for command in ("sample list r --limit 0", "export jsonl --run r --out -", "sample list r --format csv"):
        piped = subprocess.run(f"{words} {command} | head -n 1", shell=True, capture_output=True, text=True)
        assert piped.stdout.count("\n") == 1 and "Traceback" not in piped.stderr and "rror" not in piped.stderr


def test_a_progress_bar_counts_only_where_somebody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    assert not output_module.Progress("exporting").wanted
