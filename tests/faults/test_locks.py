"""A store's locks last while it is open: nothing of ours opens and closes one of its files beside SQLite."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_store import Run, Sample, SampleStore
from slime_store.dataframes import samples_df
from slime_store.errors import StoreError
from slime_store.interchange import export_frame, export_pt, export_samples, import_path, load_pt, read_dump
from tests.faults.given import RUN, output_of

_IS_LOCKED = """
import fcntl, os, sys
for path, at in ((sys.argv[1], 0x40000002), (sys.argv[1] + "-shm", 128)):
    file = os.open(path, os.O_RDWR)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
        print(path, "is not locked")
    except OSError:
        pass
"""
"""Tries to lock the bytes that every user of a write-ahead log has locked, in the database and in the shared memory."""


def _not_locked(path: Path) -> str:
    command = [sys.executable, "-c", _IS_LOCKED, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _open_again(path: Path) -> None:
    SampleStore.open(path).close()


def _open_damaged(path: Path) -> None:
    """Another program writes over the head of the file."""
    subprocess.run([sys.executable, "-c", "import sys; open(sys.argv[1], 'r+b').write(bytes(200))", path], check=True)
    with contextlib.suppress(StoreError):
        SampleStore.open(path)


def _cut(path: Path) -> None:
    subprocess.run([sys.executable, "-c", "import os, sys; os.truncate(sys.argv[1], 300)", path], check=True)
    with contextlib.suppress(StoreError):
        SampleStore.open(path)


def _read_side_file(run: Run, path: Path, suffix: str) -> None:
    [file] = Path(f"{path}-blobs").glob("*/*.blob")
    file.unlink()
    file.symlink_to(f"{path}{suffix}") if suffix else os.link(path, file)
    with pytest.raises(StoreError):
        run.load_train(0)
    with SampleStore.open(path) as store:
        store.verify()
        store.backup(path.with_name("backup.db"))


def _linked(path: Path, name: str) -> Path:
    link = path.with_name(f"link{name}.pt")
    os.link(f"{path}{name}", link)
    return link


ACTS: dict[str, Callable[[Run, Path], Any]] = {
    "export csv": lambda run, path: export_samples(run, path, format="csv"),
    "export to a hard link": lambda run, path: export_samples(run, _linked(path, ""), format="csv"),
    "export to the log": lambda run, path: export_samples(run, f"{path}-wal", format="jsonl"),
    "export to the shared memory": lambda run, path: export_samples(run, f"{path}-shm", format="jsonl"),
    "export to a link to the shared memory": lambda run, path: export_pt(run, 0, _linked(path, "-shm")),
    "export a dump": lambda run, path: export_pt(run, 0, path),
    "export a frame": lambda run, path: export_frame(samples_df(run), path, format="csv"),
    "import": lambda run, path: import_path(run, path),
    "import the shared memory": lambda run, path: import_path(run, f"{path}-shm"),
    "import a link to the shared memory": lambda run, path: import_path(run, _linked(path, "-shm")),
    "import the folder": lambda run, path: [_linked(path, "-shm"), _linked(path, ""), import_path(run, path.parent)],
    "read as a dump": lambda run, path: read_dump(path),
    "read with trust": lambda run, path: load_pt(f"{path}-shm", trust=True),
    "back up over it": lambda run, path: SampleStore.open(path).backup(path),
    "open again": lambda run, path: _open_again(path),
    "open with its head gone": lambda run, path: _open_damaged(path),
    "open when it is cut": lambda run, path: _cut(path),
    "side file that is it": lambda run, path: _read_side_file(run, path, ""),
    "side file that is its memory": lambda run, path: _read_side_file(run, path, "-shm"),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_an_open_store_keeps_its_locks(act: Callable[[Run, Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with SampleStore.open(path) as store:
        run = store.run(RUN)
        run.record_train(0, output_of(0))
        assert _not_locked(path) == ""
        with contextlib.suppress(StoreError):
            act(run, path)
        assert _not_locked(path) == ""


_OTHER = """
import sys
from slime_store import Sample, SampleStore
with SampleStore.open(sys.argv[1]) as store:
    store.run("other").record_train(100, [[Sample()]])
"""


@pytest.mark.parametrize("act", ["export csv", "import"])
def test_what_is_recorded_after_another_process_has_left_is_there(act: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    child = os.fork()
    if child == 0:
        try:
            run = SampleStore.open(path).run(RUN)
            run.record_train(0, [[Sample()]])
            with contextlib.suppress(StoreError):
                ACTS[act](run, path)
            subprocess.run([sys.executable, "-c", _OTHER, str(path)], check=True)
            for rollout_id in (1, 2, 3):
                run.record_train(rollout_id, [[Sample()]])
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    with SampleStore.open(path) as store:
        assert [info.rollout_id for info in store.run(RUN).rollouts()] == [0, 1, 2, 3]
        assert store.verify().ok
