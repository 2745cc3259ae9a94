"""Files that appear whole or not at all, and what they never replace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slime_store.errors import ExportError
from slime_store.interchange import export_pt, export_samples
from slime_store.interchange.files import whole_file
from slime_store.testing import make_train_output
from slime_store.testing.contract.opening import run_of


@pytest.mark.parametrize("name", ["store.db", "link.db", "again.db", "store.db-wal"])
def test_an_export_never_replaces_a_database(sqlite_url: str, tmp_path: Path, name: str) -> None:
    with run_of(sqlite_url) as run:
        run.record_train(0, make_train_output(1, 2))
        (tmp_path / "link.db").symlink_to(tmp_path / "store.db")
        os.link(tmp_path / "store.db", tmp_path / "again.db")
        inode = (tmp_path / "store.db").stat().st_ino
        for export in (
            lambda: export_samples(run, tmp_path / name, format="csv"),
            lambda: export_pt(run, 0, tmp_path / name),
        ):
            with pytest.raises(ExportError, match="part of a database, which no export replaces"):
                export()
        assert (tmp_path / "store.db").stat().st_ino == inode
        assert len(list(run.iter_samples())) == 2
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".new")]


def test_a_pipe_is_written_to_and_stays_one(sqlite_url: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(pipe.read_text("utf-8").split("\n")), daemon=True)
    reader.start()
    with run_of(sqlite_url) as run:
        run.record_train(0, make_train_output(1, 2))
        export_samples(run, pipe, format="jsonl", fields=["index"])
    if not pipe.is_fifo():
        pytest.fail("the pipe was replaced by a file")
    reader.join(10)
    assert [json.loads(line)["position"] for line in lines[:-1]] == [0, 1] and lines[-1] == ""


def test_a_device_stays_one(tmp_path: Path) -> None:
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    with whole_file(null) as file:
        file.write(b"gone")
    assert null.is_symlink() and null.is_char_device()


@pytest.mark.parametrize("name", ["x" * 251 + ".csv", "%s {0} \n '\".csv", "-"])
def test_any_name_that_a_file_may_have_will_do(tmp_path: Path, name: str) -> None:
    with whole_file(tmp_path / "new folder" / name) as file:
        file.write(b"all")
    assert [path.name for path in (tmp_path / "new folder").iterdir()] == [name]


@pytest.mark.parametrize("name", ["x" * 256, "a\0b", "\ud800"])
def test_a_name_that_no_file_may_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExportError), whole_file(tmp_path / name) as file:
        file.write(b"all")
    assert list(tmp_path.iterdir()) == []


def test_a_killed_export_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom slime_store.interchange.files import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as file:\n    file.write(b'half'); file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    target = tmp_path / "out.csv"
    assert subprocess.run([sys.executable, "-c", code, str(target)], check=False).returncode == -9
    assert not target.exists()


@pytest.mark.parametrize("target", ["", "."])
def test_no_name_is_no_folder_to_fill(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with run_of(sqlite_url) as run:
        run.record_train(0, make_train_output(1, 2))
        if target:
            assert [file.path for file in export_samples(run, target, format="csv")] == ["0.csv"]
            return
        with pytest.raises(ExportError):
            export_samples(run, target, format="csv")
    assert list((tmp_path / "here").iterdir()) == []
