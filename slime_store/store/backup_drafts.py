"""Backups in the making, and what is left of those whose process was killed.

A backup is made as ``DRAFT`` and ``DRAFT-blobs``. In that directory a file names the draft, and is locked as long as
the draft is being made: the kernel lets go of the lock with the process, so whoever gets it knows that nobody works on
the draft any more. The directory gets its own name first, then the database. Killed between the two, the file in the
directory leads to the draft: one that has no other name was never anybody's backup, and the directory neither.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from slime_store.blobs import BlobDirectory
from slime_store.database import draft_of, filesystem_type, is_network, number_of, tell_after_fork

QUIET_SECONDS = 3600.0
"""A draft of which no lock tells is left over when nothing in it has changed for so long."""

_MARKER = ".slime_store-draft"
_BLOBS = "-blobs"
_PART = re.compile(r"(?P<draft>\.slime_store-[0-9a-f]+\.new)(?P<suffix>|-wal|-shm|-journal|-blobs)")
_LOGS = ("-wal", "-shm", "-journal")
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF}
"""What `flock` says where there are none, by file system."""

_made_here: set[str] = set()
"""Drafts that threads of this process make. A lock of an NFS is the process's: it would be got a second time."""


@contextmanager
def backup_draft(target: Path) -> Iterator[Path]:
    """Give the name under which to make a backup; what has this name afterwards is removed.

    Raises:
        OSError: the directory of its side files cannot be made.
    """
    draft = draft_of(target)
    mark = _Mark(draft)
    _made_here.add(draft.name)
    try:
        mark.make()
        yield draft
    finally:
        mark.close()  # first: an NFS keeps the name of a file that is open
        with contextlib.suppress(OSError):
            _remove(draft)
        _made_here.discard(draft.name)


def unmark(directory: BlobDirectory) -> None:
    """Note that a directory of side files is a whole backup's. A mark that stays does no harm."""
    with contextlib.suppress(OSError):
        (directory.root / _MARKER).unlink(missing_ok=True)


@dataclass
class LeftOver:
    """What a killed process has left of a store or a backup that it was making.

    Attributes:
        draft: the name under which it was made; there need not be a file of that name.
        files: the database, and files beside it, as far as they are there.
        directories: of side files: the draft's, or one that has the backup's name already.
    """

    draft: Path
    files: list[Path] = field(default_factory=list)
    directories: list[Path] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The names of what ``remove`` would remove."""
        of_directories = [path.name if self._has(path) else f"{path.name}/{_MARKER}" for path in self.directories]
        return sorted([*(path.name for path in self.files), *of_directories])

    def remove(self) -> None:
        """Remove it. Of a directory that is, or may be, somebody's only marks go; what cannot be removed stays."""
        own = Path(f"{self.draft}{_BLOBS}")
        with contextlib.suppress(OSError):
            for directory in self.directories:
                if not self._has(directory):
                    if _has_one_name(self.draft):
                        BlobDirectory.beside(self.draft, number_of(self.draft)).unmark(directory)
                    (directory / _MARKER).unlink(missing_ok=True)
                elif directory != own:
                    os.rename(directory, own)
                    if os.path.lexists(_database_of(directory)):  # a store was made just now
                        os.rename(own, directory)
            _remove(self.draft)  # last: by the draft it is known whose the directories are

    def _has(self, directory: Path) -> bool:
        """Whether a directory is the draft's alone: neither a store's, nor of a backup that got its name."""
        own = Path(f"{self.draft}{_BLOBS}")
        if directory == own:
            return True
        return not (os.path.lexists(own) or os.path.lexists(_database_of(directory))) and _has_one_name(self.draft)


def left_overs(directory: Path, quiet_seconds: float = QUIET_SECONDS) -> Iterator[LeftOver]:
    """Yield what killed processes have left in a directory; nobody else removes it until the next one is asked for.

    Args:
        directory: where stores or backups are made.
        quiet_seconds: how long what no lock tells of must have been left alone.
    """
    for found in _found(directory):
        if found.draft.name in _made_here:
            continue
        with _claimed(found, quiet_seconds) as is_left_over:
            if is_left_over:
                yield found


def remove_left_overs(directory: Path, quiet_seconds: float = QUIET_SECONDS) -> None:
    """Remove what killed processes have left in a directory."""
    for found in left_overs(directory, quiet_seconds):
        found.remove()


class _Mark:
    """The file in a draft's directory that names it, locked until it is closed."""

    def __init__(self, draft: Path) -> None:
        self._draft = draft
        self._descriptor: int | None = None
        tell_after_fork(self)

    def make(self) -> None:
        root = BlobDirectory.beside(self._draft).root
        root.mkdir()
        made = root / f"{_MARKER}.tmp"
        descriptor = self._descriptor = os.open(made, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        with contextlib.suppress(OSError):  # where there are no locks, only time tells
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, f"{self._draft.name}\n{socket.gethostname()}\n".encode())
        os.rename(made, root / _MARKER)  # nobody finds one that is not locked yet

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def after_fork(self) -> None:
        """Leave the lock to the parent: it would outlive it here."""
        self.close()


def _found(directory: Path) -> list[LeftOver]:
    """Return all drafts in a directory, by what is there of them, those that are being made among them."""
    found: dict[str, LeftOver] = {}

    def of(draft: str) -> LeftOver:
        return found.setdefault(draft, LeftOver(directory / draft))

    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            part = _PART.fullmatch(entry.name)
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    if part is not None and part["suffix"] == _BLOBS:
                        of(part["draft"]).directories.append(Path(entry.path))
                    elif entry.name.endswith(_BLOBS) and (marked := _read(Path(entry.path) / _MARKER)):
                        of(marked[0]).directories.append(Path(entry.path))
                elif part is not None and part["suffix"] != _BLOBS and entry.is_file(follow_symlinks=False):
                    of(part["draft"]).files.append(Path(entry.path))
    return [found[name] for name in sorted(found)]


def _read(marker: Path) -> tuple[str, str] | None:
    """Return the draft that a mark names, and the host of its maker; None if it is no mark."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(marker, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            draft, host, _ = os.read(descriptor, 1000).decode().split("\n")
        finally:
            os.close(descriptor)
        part = _PART.fullmatch(draft)
        if part is not None and not part["suffix"]:
            return draft, host
    return None


@contextmanager
def _claimed(found: LeftOver, quiet_seconds: float) -> Iterator[bool]:
    """Tell whether nobody works on a draft any more, with its lock held, if it has one, while the body runs."""
    descriptors: list[int] = []
    is_told = False
    try:
        for marker in [path / _MARKER for path in found.directories]:
            marked = _read(marker)
            if marked is None:
                continue
            try:
                descriptors.append(os.open(marker, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK))
                fcntl.flock(descriptors[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    continue
                yield False  # it is locked, has gone, or is not ours to touch
                return
            # those of a network's file system may hold on one machine only
            is_told = marked[1] == socket.gethostname() or not is_network(filesystem_type(marker))
        yield is_told or _last_change(found) <= time.time() - quiet_seconds
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _last_change(found: LeftOver) -> float:
    """Return when the newest of a draft's files was written, or a name given in its directories."""
    newest = 0.0
    paths = [*found.files, *found.directories]
    for directory in found.directories:
        for parent, names, files in os.walk(directory):
            paths += [Path(parent) / name for name in (*names, *files)]
    for path in paths:
        with contextlib.suppress(OSError):
            newest = max(newest, path.lstat().st_mtime)
    return newest


def _remove(draft: Path) -> None:
    """Remove what has a draft's name: the mark last, without which only time would tell that the rest is left over."""
    for suffix in (*_LOGS, ""):
        Path(f"{draft}{suffix}").unlink(missing_ok=True)
    root = Path(f"{draft}{_BLOBS}")
    if not root.is_dir():
        return
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != _MARKER:
            path.unlink(missing_ok=True)
    (root / _MARKER).unlink(missing_ok=True)
    root.rmdir()


def _database_of(directory: Path) -> Path:
    return directory.with_name(directory.name.removesuffix(_BLOBS))


def _has_one_name(path: Path) -> bool:
    try:
        return path.lstat().st_nlink == 1
    except OSError:
        return False
