"""Where the spool lies when nobody says: a directory that is this user's alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_store.plugins.spool import own_directory


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"slime_store_spool-{os.getuid()}"


def test_it_is_made_for_this_user_alone_and_used_again(expected: Path) -> None:
    assert own_directory() == expected == own_directory()
    assert stat.S_IMODE(expected.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "put",
    [
        lambda path: path.symlink_to(path.parent),
        lambda path: path.write_text("a file"),
        lambda path: (path.mkdir(), path.chmod(0o777)),
        lambda path: (path.mkdir(mode=0o700), os.chown(path, 65534, 65534)),
    ],
    ids=["link", "file", "open to all", "of another user"],
)
def test_what_somebody_has_put_there_is_left_alone(expected: Path, put: Callable[[Path], object]) -> None:
    try:
        put(expected)
    except PermissionError:
        pytest.skip("only root can give a directory away")
    directory = own_directory()
    assert directory != expected
    assert directory.parent == expected.parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
