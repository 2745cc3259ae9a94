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
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from slime_store.blobs.held import leads_to_database
from slime_store.blobs.owners import Owners
from slime_store.blobs.syncing import TEMPORARY, sync_directory, sync_file, write_whole
from slime_store.errors import BlobCorruptError, BlobMissingError

_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{32}\.blob")
_TRIES = 5
_READING = os.O_RDONLY | os.O_CLOEXEC


class BlobDirectory:
    """Files of one store. Safe from several threads and processes.

    Args:
        root: the directory; made on the first write, never by reading.
        database: the database file that it is beside; without one it is nobody's in particular.
        number: the number of the store in it; 0: it has none, or nothing is marked or deleted.
    """

    def __init__(self, root: Path, database: Path | None = None, number: int = 0) -> None:
        self.root = root
        self._owners = None if database is None else Owners(root, database, number)
        self._durable: set[str] = set()  # subdirectories whose entry this process has synced

    @classmethod
    def beside(cls, database: Path, number: int = 0) -> BlobDirectory:
        """Return the directory of the store whose database file is ``database``."""
        real = Path(os.path.realpath(database))  # as SQLite does for its log: one store, whatever links lead to it
        return cls(real.with_name(real.name + "-blobs"), real, number)

    def mark(self, shown: Path | None = None) -> None:
        """Note in the directory that this store uses it.

        Args:
            shown: what to call the database there, for people, if it will have another name.

        Raises:
            OSError: that cannot be written.
        """
        if self._owners is not None:
            self._owners.add(shown)

    def unmark(self, root: Path) -> None:
        """Note in a directory, which need not be this one, that this store does not use it."""
        if self._owners is not None:
            self._owners.withdraw(root)

    def others(self) -> str | None:
        """Return which other stores use the directory, and what to do about it, or None."""
        return None if self._owners is None else self._owners.others()

    def objection(self) -> str | None:
        """Return why no file may be deleted here but one that was never recorded; None where this store is alone."""
        return None if self._owners is None else self._owners.objection()

    def write(self, data: bytes) -> str:
        """Write a file durably and return its name.

        A process may be stopped for so long that the file is taken for one that a crash has left, and removed before it
        has its name; then it is begun anew.

        Raises:
            OSError: it cannot be written, or was removed five times.
        """
        for _ in range(_TRIES - 1):
            with contextlib.suppress(FileNotFoundError):
                return self._write(data)
        return self._write(data)

    def _write(self, data: bytes) -> str:
        token = uuid.uuid4().hex
        name = f"{token[:2]}/{token}.blob"
        path = self.root / name
        if not path.parent.exists():
            self._durable.discard(token[:2])
            path.parent.mkdir(parents=True, exist_ok=True)
        self.mark()
        if token[:2] not in self._durable:  # made just now, perhaps by another process that has not synced it yet
            sync_directory(self.root)
            sync_directory(self.root.parent)
            self._durable.add(token[:2])
        write_whole(path, data, path.with_name(path.name + TEMPORARY))
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
            if leads_to_database(path):
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
            temporary = target.with_name(target.name + TEMPORARY)
            try:
                if leads_to_database(source):
                    return False
                with self._opened(name) as file, open(temporary, "wb") as copy:
                    shutil.copyfileobj(file, copy, 1 << 20)
            except FileNotFoundError:
                return False
            with open(temporary, "rb") as file:
                sync_file(file.fileno())
            os.rename(temporary, target)
        return True

    def give_back(self, other: BlobDirectory, names: Iterable[str]) -> None:
        """Move these files into another directory; what else has come meanwhile is somebody else's, and stays."""
        for name in names:
            source, target = self._path(name), other._path(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(source, target)
        other.unmark(self.root)
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
        """Delete a file, whosever it is (see ``objection``); one that is gone already is no error.

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

    def is_removable(self, name: str) -> bool:
        """Return whether what has a name is no directory: a record makes none, so what is in it is somebody's."""
        try:
            path = self._path(name)
            with _directory(path.parent) as parent:
                return not stat.S_ISDIR(os.stat(path.name, dir_fd=parent, follow_symlinks=False).st_mode)
        except OSError:  # gone meanwhile, or found out when it is tried
            return True

    def temporary(self) -> Iterator[Path]:
        """Yield the files that are not whole, or are left of a process that was killed.

        Raises:
            OSError: a directory cannot be listed.
        """
        yield from (path for path in self._files() if path.name.endswith(f".blob{TEMPORARY}"))
        if self._owners is not None:
            yield from self._owners.unfinished()

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


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    """Give a descriptor of a directory that is no link."""
    descriptor = os.open(path, _READING | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
