"""Whose a directory of side files is: what keeps a store from deleting the files of another one.

A database finds its directory by nothing but a name. A link, a database put in another one's place, or one that
somebody made up leads to a directory that is another store's, and no row here names a file of that. So each store that
writes into a directory leaves a mark in it, ``.slime_store-of-N-M``, with the inode number N of its database file and
the number M of the store (``database/numbers.py``): the same under every name. A copy has another N, and what was
written into the file, or got its N when it was gone, another M. Device numbers differ between mounts and machines and
are left out. A mark without M, as earlier versions left them and stores leave that have none, is known by N alone.

A mark also says the inode number of the directory. One that says another was copied along with the directory: its store
has the original, and nothing here. Through a link that is not certain, so there it counts. Whoever meets no mark of
another store has the directory for itself, but for a link where its own mark is not: nobody knows whom that leads to.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import uuid
from pathlib import Path
from typing import NamedTuple

from slime_store.blobs.held import leads_to_database
from slime_store.blobs.syncing import TEMPORARY, write_whole

_PREFIX = ".slime_store-of-"
_MARK = re.compile(rf"{re.escape(_PREFIX)}[0-9]+(--?[0-9]+)?")
_MOST_SHOWN = 5
_MAX_BYTES = 8192
"""More than the longest path and a number."""


class Owners:
    """The marks in a directory, as the store of one database sees them.

    Args:
        root: the directory; there need not be one.
        database: the database file; there need not be one yet.
        number: the store's; 0: it has none.
    """

    def __init__(self, root: Path, database: Path, number: int) -> None:
        self._root = root
        self._database = database
        self._number = number

    def others(self) -> str | None:
        """Return which other stores the directory is of, and what to do about it, or None. Costs a listing of it."""
        try:
            valid = [f"{name} ({mark.database})" for name, mark in self._others().items() if mark.counts]
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self._root} cannot be listed: {error.strerror}"
        if not valid:
            return None
        shown = ", ".join(valid[:_MOST_SHOWN])
        if len(valid) > _MOST_SHOWN:
            shown += f" and {len(valid) - _MOST_SHOWN} more"
        return (
            f"{self._root} has marks of other stores: {shown}. Give each store a directory of its own, or "
            "remove the mark of a store that is gone"
        )

    def objection(self) -> str | None:
        """Return why no file may be deleted in the directory; None where it is this store's alone."""
        if (others := self.others()) is not None:
            return others
        if os.path.islink(self._root) and not any(os.path.lexists(self._root / name) for name in self._names()):
            return (
                f"{self._root} is a link, and no mark in what it leads to says that it is this store's. The next side "
                "file that is recorded leaves one"
            )
        return None

    def add(self, shown: Path | None = None) -> None:
        """Leave this store's mark, durably, where it is not there; one without its number, and those copied along, go.

        Args:
            shown: what it calls the database, for people; default: by the name that it has now.

        Raises:
            OSError: it cannot be written.
        """
        directory = self._root.stat().st_ino
        name, *earlier = self._names() or [""]
        path = self._root / name
        if not name or _read(path).directory == directory:
            return
        text = f"{directory}\n".encode() + os.fsencode(shown or self._database) + b"\n"
        write_whole(path, text, self._root / f"{name}.{uuid.uuid4().hex}{TEMPORARY}", is_shared=True)
        for other in (*earlier, *(other for other, mark in self._others().items() if not mark.counts)):
            with contextlib.suppress(OSError):
                (self._root / other).unlink()

    def unfinished(self) -> list[Path]:
        """Return the marks that are not whole, or are left of a process that was killed."""
        return sorted(self._root.glob(f"{_PREFIX}*{TEMPORARY}"))

    def withdraw(self, root: Path) -> None:
        """Remove this store's mark from a directory, which need not be its own; a mark that stays keeps files."""
        for name in self._names():
            with contextlib.suppress(OSError):
                (root / name).unlink()

    def _others(self) -> dict[str, _Mark]:
        """Return the marks of other stores by name."""
        own, inode, is_link = self._names(), self._root.stat().st_ino, os.path.islink(self._root)
        names = sorted(name for name in os.listdir(self._root) if _MARK.fullmatch(name) and name not in own)
        marks = {name: _read(self._root / name) for name in names}
        return {name: mark._replace(counts=is_link or mark.directory in (inode, None)) for name, mark in marks.items()}

    def _names(self) -> list[str]:
        """Return the names that a mark of this store may have, first the one to give; none without a database."""
        try:
            name = f"{_PREFIX}{self._database.stat().st_ino}"
        except OSError:
            return []
        return [f"{name}-{self._number}", name] if self._number else [name]


class _Mark(NamedTuple):
    """What a mark says: the directory's inode number, None where it cannot be read, and for people the database."""

    directory: int | None = None
    database: str = "it cannot be read"
    counts: bool = True


def _read(path: Path) -> _Mark:
    """Return what a mark says; what is no mark, a link for example, is not followed."""
    with contextlib.suppress(OSError, ValueError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_BYTES and not leads_to_database(path):
            directory, database = path.read_bytes().split(b"\n", 1)
            return _Mark(int(directory), repr(os.fsdecode(database.removesuffix(b"\n"))))
    return _Mark()
