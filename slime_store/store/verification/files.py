"""Files beside the database that no row names, and what crashed processes left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from slime_store.blobs import BlobDirectory
from slime_store.database import chunked
from slime_store.store.backup_drafts import LeftOver, left_overs
from slime_store.store.handle import StoreHandle
from slime_store.store.verification.contents import find_shared_files
from slime_store.store.verification.findings import Findings

GRACE_SECONDS = 3600.0
"""Files younger than this may belong to a record whose transaction has not been committed yet."""


def note_lost_names(handle: StoreHandle, findings: Findings) -> None:
    """Note whether a row may have lost the name of its side file, without looking at more than names and sizes."""
    if handle.directory is None:
        return
    with handle.reading() as connection:
        blobs = handle.blobs(connection)
        is_lost, lost = blobs.has_lost_a_name(), set(blobs.lost_files())
    if lost:
        with handle.reading() as connection:  # the file of what was deleted meanwhile goes after the row
            lost.intersection_update(handle.blobs(connection).lost_files())
    if is_lost or lost:
        findings.add("blob_missing", "the bytes of blobs are not where their rows say")
    find_shared_files(handle, findings)


def check_side_files(handle: StoreHandle, findings: Findings, grace_seconds: float) -> None:
    """Find side files that no row names and temporary files, both older than the grace time."""
    directory = handle.directory
    if directory is None:
        return
    objection = directory.objection()
    try:
        _check_unused(handle, directory, findings, grace_seconds, objection)
        for path in temporary_files(handle, grace_seconds):
            is_directory = path.is_dir() and not path.is_symlink()
            _add_temporary(findings, path.name, "it is a directory" if is_directory else objection)
    except OSError as error:
        what = f"{error.filename or directory.root} cannot be listed: {error.strerror}; what is in it was not compared"
        findings.add("directory_unreadable", what)
    for left_over in drafts_left_over(handle, grace_seconds):
        for name in left_over.names:
            _add_temporary(findings, name, None)


def _add_temporary(findings: Findings, name: str, objection: str | None) -> None:
    what = f"{name} was left by a process that crashed"
    findings.add("file_temporary", _but(what, objection), fixable=objection is None)


def _check_unused(
    handle: StoreHandle, directory: BlobDirectory, findings: Findings, grace_seconds: float, objection: str | None
) -> None:
    old = time.time() - grace_seconds
    if findings.is_in_doubt:
        objection = "what is damaged may need it"
    elif findings.lacks_payloads:
        objection = "it may be one of those that are missing under the name that their row has"
    for names in chunked(list(directory.names())):
        findings.counts["side_files"] += len(names)
        with handle.reading() as connection:
            referred = handle.blobs(connection).referred_files(names)
        for name in names:
            if name in referred:
                continue
            modified = _modified(directory.root / name)
            if modified is None:
                continue  # gone meanwhile
            if modified > old:
                findings.counts["young_files"] += 1
                continue
            reason = objection if directory.is_removable(name) else "it is a directory, not a file of this store"
            if reason is None:
                findings.unused_files.append(name)
            findings.add("file_unused", _but(f"no row names side file {name}", reason), fixable=reason is None)


def _but(what: str, objection: str | None) -> str:
    return what if objection is None else f"{what}; it stays: {objection}"


def temporary_files(handle: StoreHandle, grace_seconds: float) -> Iterator[Path]:
    """Yield old files with temporary names in the directory of side files."""
    if handle.directory is not None:
        for path in handle.directory.temporary():
            modified = _modified(path)
            if modified is not None and modified <= time.time() - grace_seconds:
                yield path


def drafts_left_over(handle: StoreHandle, grace_seconds: float) -> Iterator[LeftOver]:
    """Yield the stores and backups beside the database that a killed process was making; see ``left_overs``."""
    if handle.config.path is not None:
        yield from left_overs(handle.config.path.parent, grace_seconds)


def _modified(path: Path) -> float | None:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return None
