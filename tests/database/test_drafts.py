"""A finished file gets its name once: whatever stands there is never replaced, where files can be linked or not."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from slime_store.database import draft_of, publish
from slime_store.database.drafts import LOCK_NAME

FORK = multiprocessing.get_context("fork")


def _no_link(*_: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.fixture(params=["links", "no links"])
def rename(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The real ``os.rename``, on a file system where one takes long: between a look and it there is room for others."""
    real = os.rename

    def slow(source: Any, target: Any) -> None:
        time.sleep(0.05)
        real(source, target)

    if request.param == "no links":
        monkeypatch.setattr(os, "link", _no_link)
    monkeypatch.setattr(os, "rename", slow)
    return real


def _publish(path: Path, content: str) -> bool:
    draft = draft_of(path)
    draft.write_text(content)
    try:
        publish(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return path.read_text() == content


def test_of_several_threads_the_first_one_wins(rename: Any, tmp_path: Path) -> None:
    path, won = tmp_path / "store.db", list[str]()
    work = [threading.Thread(target=lambda n=n: _publish(path, n) and won.append(n)) for n in "abcd"]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert won == [path.read_text()]
    assert list(tmp_path.iterdir()) == [path]


def _attempt(path: Path, number: int) -> None:
    os._exit(0 if _publish(path, str(number)) else 1)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_of_several_processes_the_first_one_wins(rename: Any, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    work = [FORK.Process(target=_attempt, args=(path, number)) for number in range(4)]
    for process in work:
        process.start()
    for process in work:
        process.join(60)
    assert [str(number) for number, process in enumerate(work) if process.exitcode == 0] == [path.read_text()]
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_there_stays(rename: Any, tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("mine")
    (tmp_path / "dangling.db").symlink_to(tmp_path / "nothing")
    assert not _publish(tmp_path / "store.db", "other")
    assert not _publish(tmp_path / "dangling.db", "other")
    assert (tmp_path / "store.db").read_text() == "mine" and (tmp_path / "dangling.db").is_symlink()


def test_a_lock_that_a_killed_process_left_holds_up_nobody(rename: Any, tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).touch()
    assert _publish(tmp_path / "store.db", "whole")


def test_a_rename_that_fails_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _no_link)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", _no_link)
        with pytest.raises(PermissionError):
            _publish(tmp_path / "store.db", "whole")
    assert list(tmp_path.iterdir()) == []
    assert _publish(tmp_path / "store.db", "whole")


def test_an_error_that_says_nothing_of_links_is_no_reason_to_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    draft = draft_of(tmp_path / "store.db")
    draft.touch()
    with pytest.raises(OSError, match="No space"):
        publish(draft, tmp_path / "store.db")
    assert not (tmp_path / "store.db").exists()
