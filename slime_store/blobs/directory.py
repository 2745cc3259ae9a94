"""Blobs as files in a directory beside the database.

A file is written under a temporary name, synced, and renamed to a name that is never used again, before the transaction
that refers to it commits. So a row never points at a file that is not whole; a crash leaves at most files that no row
names. Names are random, not the content's digest: whether content is shared is the database's to decide, in a
transaction, and a file can be removed without asking who else may be about to use it.

The directory itself may be a link, to a larger disk for example. Nothing in it may: a file, or a subdirectory, that is
a link leads to what is none of the store's, and is neither read, copied nor deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from slime_store.blobs.held import is_held
from slime_store.errors import BlobCorruptError, BlobMissingError

_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{32}\.blob")
_TEMPORARY = ".tmp"
_WRITES = 3
"""How often a file is written that is removed under way."""
_READING = os.O_RDONLY | os.O_CLOEXEC
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, whose fsync leaves data in the drive's memory


class BlobDirectory:
    """Files of one store. Safe from several threads and processes.

    Args:
        root: the directory; made on the first write, never by reading.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._durable: set[str] = set()  # subdirectories whose entry this process has synced

    @classmethod
    def beside(cls, database: Path) -> BlobDirectory:
        """Return the directory of the store whose database file is ``database``."""
        real = Path(os.path.realpath(database))  # as SQLite does for its log: one store, whatever links lead to it
        return cls(real.with_name(real.name + "-blobs"))

    def write(self, data: bytes) -> str:
        """Write a file durably and return its name.

        A process that was stopped for long finds that somebody took its file for what a crash had left: it writes anew.
        """
        for _ in range(_WRITES - 1):
            with contextlib.suppress(FileNotFoundError):
                return self._written(data)
        return self._written(data)

    def _written(self, data: bytes) -> str:
        token = uuid.uuid4().hex
        name = f"{token[:2]}/{token}.blob"
        path = self.root / name
        if not path.parent.exists():
            self._durable.discard(token[:2])
            path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + _TEMPORARY)
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                _sync(file.fileno())
            os.rename(temporary, path)
            sync_directory(path.parent)
            if token[:2] not in self._durable:  # made just now, perhaps by another process that has not synced it yet
                sync_directory(self.root)
                sync_directory(self.root.parent)
                self._durable.add(token[:2])
        except BaseException:
            for left_over in (temporary, path):
                with contextlib.suppress(OSError):
                    left_over.unlink(missing_ok=True)
            raise
        return name

    def read(self, name: str, n_bytes: int | None = None) -> bytes:
        """Return a file's bytes, which must be so many if that is given: else nothing is read.

        Raises:
            BlobMissingError: there is no such file.
            BlobCorruptError: the name is not one that ``write`` gives, or the file cannot be read: it is no regular
                one, or has another size.
        """
        path = self._path(name)
        try:
            if _is_of_database(path):
                raise BlobCorruptError(f"side file {name} is a link to a file of a database")
            with self._opened(name) as file:
                descriptor = file.fileno()
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise BlobCorruptError(f"side file {name} is no regular file")
                if n_bytes is not None and status.st_size != n_bytes:
                    raise BlobCorruptError(f"side file {name} has {status.st_size} bytes, not {n_bytes}")
                return file.read()
        except FileNotFoundError:
            raise BlobMissingError(name) from None
        except OSError as exc:
            raise BlobCorruptError(f"side file {name}: {exc.strerror or exc}") from exc

    def has(self, name: str, n_bytes: int | None = None) -> bool:
        """Return whether a file is there, and of so many bytes if that is given."""
        try:
            return self.size(name) == n_bytes or n_bytes is None
        except (BlobMissingError, BlobCorruptError, TypeError, OSError):  # whatever was made of the name, or its way
            return False

    def size(self, name: str) -> int:
        """Return the bytes of a file.

        Raises:
            BlobMissingError: there is no such file.
            BlobCorruptError: it is no regular one.
        """
        try:
            return self._status(name).st_size
        except FileNotFoundError:
            raise BlobMissingError(name) from None

    def copy_to(self, other: BlobDirectory, name: str, n_bytes: int) -> bool:
        """Give another directory a file under the same name: linked where that is possible, else copied and synced.

        Files never change once they have their name, so both may have the same one. Returns False where there is no
        such file, or no regular one of so many bytes. Call ``other.sync()`` when all are there.
        """
        source, target = self._path(name), other._path(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            if self._status(name).st_size != n_bytes:
                return False
            os.link(source, target, follow_symlinks=False)
        except FileExistsError:
            return True
        except (FileNotFoundError, BlobCorruptError):
            return False
        except OSError:  # another file system, or one without links
            temporary = target.with_name(target.name + _TEMPORARY)
            try:
                if _is_of_database(source):
                    return False
                with self._opened(name) as file, open(temporary, "wb") as copy:
                    shutil.copyfileobj(file, copy, 1 << 20)
            except FileNotFoundError:
                return False
            with open(temporary, "rb") as file:
                _sync(file.fileno())
            os.rename(temporary, target)
        return True

    def give_back(self, other: BlobDirectory, names: Iterable[str]) -> None:
        """Move these files into another directory; what else has come meanwhile is somebody else's, and stays."""
        for name in names:
            source, target = self._path(name), other._path(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(source, target)
        for path in (*self._subdirectories(), self.root):
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()

    def sync(self) -> None:
        """Make the names of all files outlive a loss of power."""
        if self.root.is_dir():
            for path in self._subdirectories():
                sync_directory(path)
            sync_directory(self.root)

    def remove(self, name: str) -> None:
        """Delete a file; one that is gone already is no error.

        Raises:
            OSError: it cannot be deleted, or its subdirectory is a link.
        """
        path = self._path(name)
        with contextlib.suppress(FileNotFoundError), _directory(path.parent) as parent:
            os.unlink(path.name, dir_fd=parent)

    def names(self) -> Iterator[str]:
        """Yield the names of all whole files.

        Raises:
            OSError: a directory cannot be listed, so that its files are not known.
        """
        for path in self._files():
            name = f"{path.parent.name}/{path.name}"
            if _NAME.fullmatch(name):
                yield name

    def temporary(self) -> Iterator[Path]:
        """Yield the files that are not whole, or are left of a process that was killed.

        Raises:
            OSError: a directory cannot be listed.
        """
        return (path for path in self._files() if path.name.endswith(f".blob{_TEMPORARY}"))

    def totals(self) -> tuple[int, int]:
        """Return how many whole files there are, and their bytes, as far as that can be seen."""
        n_files = total = 0
        with contextlib.suppress(OSError):
            for name in self.names():
                with contextlib.suppress(OSError, BlobCorruptError):  # gone meanwhile, or no file
                    total += self._status(name).st_size
                n_files += 1
        return n_files, total

    def _files(self) -> Iterator[Path]:
        for directory in self._subdirectories():
            try:
                names = sorted(os.listdir(directory))
            except FileNotFoundError:  # a subdirectory goes with its last file
                continue
            yield from (directory / name for name in names)

    def _subdirectories(self) -> list[Path]:
        try:
            with os.scandir(self.root) as entries:
                return sorted(self.root / each.name for each in entries if each.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def _status(self, name: str) -> os.stat_result:
        """Return what is known of a file, itself and its subdirectory no links."""
        path = self._path(name)
        with _directory(path.parent) as parent:
            status = os.stat(path.name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise BlobCorruptError(f"side file {name} is no regular file")
        return status

    @contextmanager
    def _opened(self, name: str) -> Iterator[BufferedReader]:
        """Open a file for reading. Of a pipe, nobody may ever write to the other end."""
        path = self._path(name)
        with _directory(path.parent) as parent:
            descriptor = os.open(path.name, _READING | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
        with open(descriptor, "rb") as file:
            yield file

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise BlobCorruptError(f"{name!r} is not the name of a side file")
        return self.root / name


def _is_of_database(path: Path) -> bool:
    """Return whether a name leads to a file of an open database, whose locks would be gone if it was closed here."""
    status = os.lstat(path)
    return (stat.S_ISLNK(status.st_mode) or status.st_nlink > 1) and is_held(path)


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    """Give a descriptor of a directory that is no link."""
    descriptor = os.open(path, _READING | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the entries of a directory outlive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
            return
        except OSError:  # a file system that has only the other
            pass
    os.fsync(descriptor)
