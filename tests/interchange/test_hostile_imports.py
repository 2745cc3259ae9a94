"""Dumps with values that nobody dumps: each fails or is recorded on its own, and what is said of it is short."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from slime_store import SampleStore
from slime_store.errors import InvalidDumpError, UntrustedPickleError
from slime_store.interchange import importing, load_pt, read_dump
from slime_store.interchange.importing import import_path
from slime_store.interchange.saying import cut, shown, told
from slime_store.testing.contract.opening import run_of
from tests.interchange.archives import saved, write_archive

GOOD = {"prompt": "a", "response": "b", "tokens": [1, 2], "response_length": 1, "reward": 1.0, "status": "completed"}
LONG = 10**5000
TEXT = "x" * 300_000
DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]


class Loud:
    def __repr__(self) -> str:
        raise OSError


def sample(**changes: Any) -> dict[str, Any]:
    return {"samples": [{**GOOD, **changes}]}


ODD: list[Any] = [
    {"rollout_id": LONG, "samples": [GOOD]},
    {"rollout_id": TEXT, "samples": [GOOD]},
    {"rollout_id": [LONG], "samples": [GOOD]},
    {"samples": [GOOD], LONG: LONG, TEXT: TEXT},
    {"samples": [GOOD], "metrics": {LONG: LONG}},
    {"samples": [GOOD], "datasets": {float("nan"): LONG}},
    sample(status=LONG),
    sample(status=[LONG, {LONG: TEXT}]),
    sample(status=TEXT),
    sample(status=[TEXT] * 9),
    sample(status=DEEP),
    sample(status=torch.zeros(3).to(torch.float8_e4m3fn)),
    sample(status=np.zeros(5000)),
    sample(tokens=[LONG]),
    sample(index=LONG, group_index=LONG, rollout_id=LONG),
    sample(response_length=LONG, remove_sample=LONG, non_generation_time=LONG),
    sample(reward=LONG),
    sample(reward={LONG: LONG}),
    sample(weight_versions=[LONG, None, {}, "\0"]),
    sample(prompt={LONG: DEEP}),
    sample(label=LONG),
    sample(metadata={LONG: 1, (1,): 2, TEXT: DEEP}),
    sample(loss_mask=[LONG], rollout_log_probs=[LONG]),
    sample(spec_info={"spec_accept_token_num": LONG}, prefix_cache_info={"cached_tokens": LONG}),
    sample(**{TEXT: LONG, "": 1, "__class__": 2, "\ud800": 3}),
]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", ["train", "eval"])
def test_no_value_in_a_dump_stops_an_import_or_makes_a_long_report(
    sqlite_url: str, tmp_path: Path, kind: Literal["train", "eval"], strict: bool
) -> None:
    folder = tmp_path / "dumps"
    for n, content in enumerate([*ODD, {"samples": [GOOD]}]):
        saved(folder / f"{'eval_' * (kind == 'eval')}{n}.pt", content)
    with SampleStore.open(sqlite_url) as store:
        run = store.run("run")
        report = import_path(run, folder, strict=strict)
        assert len(report.files) == len(ODD) + 1 and report.files[-1].action == "recorded"
        assert "<an integer of 16610 bits>" in report.files[0].reason
        for file in report.files:
            assert max(map(len, [file.reason, *file.notes, *file.placeholders])) < 1500
            assert file.action == "failed" or file.kind == kind
        assert [each.rollout_id for each in report.recorded] == [info.rollout_id for info in run.rollouts()]
        assert store.verify().ok


def test_long_integers_in_a_dump_are_named_short_on_both_databases(store_url: str, tmp_path: Path) -> None:
    saved(tmp_path / "1.pt", {"rollout_id": LONG, "samples": [GOOD]})
    saved(tmp_path / "2.pt", sample(status=LONG))
    with run_of(store_url) as run:
        failed, recorded = import_path(run, tmp_path).files
    assert failed.reason.startswith("its rollout_id is <an integer of 16610 bits>")
    assert recorded.notes == (
        "sample 0: its status <an integer of 16610 bits> is not one of slime's; it is kept as it is",
    )


def test_a_number_in_a_name_may_have_any_number_of_digits(store_url: str, tmp_path: Path) -> None:
    saved(tmp_path / f"{2**63}.pt", {"samples": [GOOD]})
    saved(tmp_path / f"{'9' * 200}.pt", {"samples": [GOOD], "rollout_id": 3})
    with run_of(store_url) as run:
        failed, recorded = import_path(run, tmp_path).files
        assert "its rollout_id is 9223372036854775808" in failed.reason and recorded.rollout_id == 3
        assert [each.action for each in import_path(run, tmp_path).files] == ["failed", "skipped"]


def test_a_name_that_is_no_text_is_only_a_name(store_url: str, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff_1.pt"
    saved(tmp_path / "1.pt", {"samples": [GOOD]})
    try:
        os.rename(tmp_path / "1.pt", name)
    except OSError:
        pytest.skip("file names are text here")
    saved(tmp_path / "2.pt", {"samples": [GOOD]})
    with run_of(store_url) as run:
        assert [each.action for each in import_path(run, tmp_path).files] == ["recorded", "recorded"]


def test_what_nobody_has_thought_of_fails_one_file(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path / "1.pt", {"samples": [GOOD], "odd": 1})
    saved(tmp_path / "2.pt", {"samples": [GOOD]})

    def strange(archive: Any, **options: Any) -> Any:
        dump = read_dump(archive, **options)
        return {}[LONG] if dump.extras else dump

    monkeypatch.setattr(importing, "read_dump", strange)
    with SampleStore.open(sqlite_url) as store:
        failed, recorded = import_path(store.run("run"), tmp_path).files
    assert failed.reason == "what it holds cannot be recorded (KeyError)" and recorded.action == "recorded"
    assert "1.pt could not be imported" in caplog.text


def test_names_in_a_pickle_are_told_short(tmp_path: Path) -> None:
    long = b"X" + (300_000).to_bytes(4, "little") + b"x" * 300_000
    for data in (
        b"\x80\x04" + long + long + b"\x93.",
        b"\x80\x04cnumpy\ndtype\n" + long + b"\x89\x88\x87R.",
        b"\x80\x04c_codecs\nencode\nX\x01\0\0\0a" + long + b"\x86R.",
    ):
        with pytest.raises(InvalidDumpError) as caught:
            load_pt(write_archive(tmp_path / "1.pt", data))
        assert len(str(caught.value)) < 2000
        assert not isinstance(caught.value, UntrustedPickleError) or len(caught.value.name) < 1500


def test_values_are_shown_short_whatever_they_are() -> None:
    assert shown("quarantined") == "'quarantined'" and shown(3) == "3" and shown(None) == "None"
    for value in (LONG, TEXT, [TEXT] * 99, DEEP, {LONG: TEXT}, Loud(), np.zeros(10**5), torch.zeros(9999)):
        assert 0 < len(shown(value)) < 1500
    assert told(KeyError(LONG)) == "KeyError" and told(ValueError("bad")) == "ValueError: bad"
    assert (
        cut("short") == "short"
        and len(cut(TEXT)) < 1000
        and cut("a" + TEXT + "b")[0] + cut("a" + TEXT + "b")[-1] == "ab"
    )
