"""Side files: whole or absent, and never outside their directory."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from slime_store.blobs import FILE_BYTES, BlobDirectory, PayloadWriter, syncing
from slime_store.blobs import directory as directory_module
from slime_store.errors import BlobCorruptError, BlobMissingError
from tests.services.files import let_listing_fail


def test_what_is_written_is_read_until_it_is_removed(tmp_path: Path) -> None:
    directory = BlobDirectory.beside(tmp_path / "runs.db")
    name = directory.write(b"content")
    assert directory.read(name) == b"content"
    assert list(directory.names()) == [name] and directory.totals() == (1, 7)
    directory.remove(name)
    directory.remove(name)
    with pytest.raises(BlobMissingError):
        directory.read(name)


@pytest.mark.parametrize("gone", ["file", "directories"])
def test_what_is_removed_while_it_is_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    """As by somebody who takes it for what a killed process has left, since the writer was stopped for long."""
    directory, original, seen = BlobDirectory(tmp_path / "blobs"), os.rename, []

    def rename(source: Path, target: Path) -> None:
        if not seen:
            seen.append(source)
            source.unlink() if gone == "file" else shutil.rmtree(tmp_path / "blobs")
        original(source, target)

    monkeypatch.setattr(os, "rename", rename)
    name = directory.write(b"content")
    assert seen and directory.read(name) == b"content"
    assert list(directory.names()) == [name] and not list(directory.temporary())


def test_reading_makes_no_directory(tmp_path: Path) -> None:
    directory = BlobDirectory.beside(tmp_path / "runs.db")
    assert list(directory.names()) == [] and directory.totals() == (0, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("which", ["", "ab"])
def test_a_directory_that_cannot_be_listed_is_not_taken_for_empty(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = BlobDirectory(tmp_path / "blobs")
    names = {directory.write(b"content") for _ in range(8)}
    subdirectories = sorted(path.name for path in directory.root.iterdir())
    unlistable = directory.root / (which and subdirectories[-1])
    let_listing_fail(monkeypatch, unlistable)
    for listed in (directory.names, directory.temporary):
        with pytest.raises(OSError, match="Too many open files"):
            list(listed())
    n_files = sum(not which or name.startswith(subdirectories[-1]) for name in names)
    assert directory.totals() == (8 - n_files, 7 * (8 - n_files))  # what can be seen


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "ab/../../x.blob", "", "ab/" + "0" * 32, "AB/x.blob\n"])
def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    directory = BlobDirectory(tmp_path / "blobs")
    for act in (directory.read, directory.remove):
        with pytest.raises(BlobCorruptError):
            act(name)


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    directory = BlobDirectory(tmp_path / "blobs")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        directory.write(b"content")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("what", ["the file", "its subdirectory", "the mark"])
def test_a_file_that_is_removed_while_it_is_written_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    (tmp_path / "runs.db").touch()
    directory = BlobDirectory.beside(tmp_path / "runs.db")
    if what != "the mark":
        directory.root.mkdir()
        directory.mark()
    fsync, n_removed = os.fsync, 0

    def removed(descriptor: int) -> None:
        nonlocal n_removed
        fsync(descriptor)
        for path in [path for path in directory.root.rglob("*.tmp") if n_removed < 3]:
            n_removed += 1
            path.unlink()
            if what == "its subdirectory":
                path.parent.rmdir()

    monkeypatch.setattr("os.fsync", removed)
    name = directory.write(b"content")
    assert n_removed == 3 and directory.read(name) == b"content"
    assert list(directory.names()) == [name] and not list(directory.temporary())


def test_a_file_that_is_removed_again_and_again_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, tried = BlobDirectory(tmp_path / "blobs"), list[Path]()

    def removed(_descriptor: int) -> None:
        for path in directory.temporary():
            tried.append(path)
            path.unlink()

    monkeypatch.setattr("os.fsync", removed)
    with pytest.raises(FileNotFoundError):
        directory.write(b"content")
    assert len(set(tried)) == 5


def test_only_large_payloads_go_to_files(tmp_path: Path) -> None:
    writer = PayloadWriter(BlobDirectory(tmp_path))
    small = writer.keep("raw.1", "uint8", 10, b"x" * 10)
    large = writer.keep("raw.1", "uint8", FILE_BYTES, b"x" * FILE_BYTES)
    assert (small.data, small.file_name) == (b"x" * 10, None)
    assert large.data is None and writer.written == [large.file_name]
    assert PayloadWriter(None).keep("raw.1", "uint8", FILE_BYTES, b"x" * FILE_BYTES).file_name is None


def synced_directories(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Note the directories that are synced from now on."""
    synced: list[Path] = []
    sync = syncing.sync_directory

    def noted(path: Path) -> None:
        synced.append(path)
        sync(path)

    for module in (directory_module, syncing):
        monkeypatch.setattr(module, "sync_directory", noted)
    return synced


def test_a_directory_that_another_process_has_just_made_is_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = BlobDirectory(tmp_path / "blobs")
    monkeypatch.setattr(directory_module.uuid, "uuid4", lambda: SimpleNamespace(hex="ab" + secrets.token_hex(15)))
    (tmp_path / "blobs" / "ab").mkdir(parents=True)  # by the other one, which has not synced it yet
    synced = synced_directories(monkeypatch)
    directory.write(b"content")
    assert synced == [tmp_path / "blobs", tmp_path, tmp_path / "blobs" / "ab"]
    synced.clear()
    directory.write(b"content")
    assert synced == [tmp_path / "blobs" / "ab"]  # known to be there
    synced.clear()
    shutil.rmtree(tmp_path / "blobs")
    directory.write(b"content")
    assert synced[:2] == [tmp_path / "blobs", tmp_path]


def test_on_macos_files_and_directories_are_synced_down_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(syncing, "_FULL_SYNC", 51)
    monkeypatch.setattr(syncing.fcntl, "fcntl", lambda _descriptor, request: asked.append(request))
    monkeypatch.setattr("os.fsync", lambda _descriptor: pytest.fail("this would leave it in the drive's memory"))
    BlobDirectory(tmp_path / "blobs").write(b"content")
    assert asked == [51] * 4

    def refuse(_descriptor: int, _request: int) -> None:
        raise OSError(45, "Operation not supported")

    monkeypatch.setattr(syncing.fcntl, "fcntl", refuse)
    monkeypatch.setattr("os.fsync", asked.append)
    BlobDirectory(tmp_path / "others").write(b"content")
    assert len(asked) == 8
