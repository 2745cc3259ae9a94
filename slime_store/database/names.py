"""The names of an SQLite file: under each of several hard links SQLite keeps a log of its own, unknown to the others.

Whoever writes must have the only name. Whoever reads by one of several misses what is in the log of another one. That
log lies beside its name, so it is found where the name is in the same directory; nobody can tell where a name in
another directory is, and that is warned of.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from slime_store.database.drafts import is_draft
from slime_store.errors import DatabaseError

_LOGS = ("-wal", "-journal")

_warned: set[tuple[int, Path]] = set()


class SecondNameWarning(UserWarning):
    """A store's file is read by one of several names, and not all of them are known."""


class _Others(NamedTuple):
    here: list[str]
    """Names in the same directory."""
    n_elsewhere: int


def check_only_name(path: Path, display_url: str) -> None:
    """Make sure that no hard link gives the file a second name.

    Raises:
        DatabaseError: one does.
    """
    try:
        others = _other_names(Path(os.path.realpath(path)))
    except OSError:
        return  # whoever opens the file says what is wrong
    if others.here or others.n_elsewhere:
        raise DatabaseError(
            display_url,
            "the file has a second name (a hard link), and SQLite would keep a log for each; remove the link, or copy "
            "the file",
        )


def remove_first_name(path: Path) -> None:
    """Remove the name under which a finished file was made, if whoever made it was killed before that."""
    path = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):
        if os.stat(path).st_nlink > 1:
            for name in filter(is_draft, list(_names(path))):
                os.unlink(path.with_name(name))


def check_reading_name(path: Path, display_url: str) -> None:
    """Make sure that no other name of a file that is to be read has a log; warn of names that cannot be looked at.

    Since nobody writes to a file with two names, a log that is not there now does not come later.

    Raises:
        DatabaseError: one has.
    """
    path = Path(os.path.realpath(path))
    try:
        others = _other_names(path)
    except OSError:
        return
    for name in others.here:
        for suffix in _LOGS:
            log = path.with_name(name + suffix)
            if _size(log):
                raise DatabaseError(
                    display_url,
                    f"{path.name} is a second name (a hard link) of {name}, and what is in {log.name} is not seen by "
                    f"it; open it as {name}",
                )
    if others.n_elsewhere and (os.getpid(), path) not in _warned:
        _warned.add((os.getpid(), path))
        warnings.warn(
            f"{path} has {others.n_elsewhere} other name(s) (hard links) elsewhere. What somebody has recorded by such "
            "a name, and is still in the log beside it, is not seen. Open the store by the name by which it is written",
            SecondNameWarning,
            stacklevel=6,  # who called `SampleStore.open`
        )


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _other_names(path: Path) -> _Others:
    """Return a file's names but this one. The name under which it was made, which may still be there, does not count.

    Raises:
        OSError: there is no such file.
    """
    others = _Others([], 0)
    for _ in range(5):
        n_names = os.stat(path).st_nlink
        if n_names < 2:
            return _Others([], 0)
        names = list(_names(path))
        others = _Others([name for name in names if name != path.name and not is_draft(name)], n_names - len(names))
        if not others.n_elsewhere:
            return others
        time.sleep(0.01)  # the draft may have gone between the two looks
    return others


def _names(path: Path) -> Iterator[str]:
    """Yield the names that a file has in its directory: this one, and others as far as they can be read."""
    yield path.name
    status = os.stat(path)
    try:
        with os.scandir(path.parent) as entries:
            for entry in entries:
                if entry.name != path.name and os.path.samestat(entry.stat(follow_symlinks=False), status):
                    yield entry.name
    except OSError:  # a file that goes meanwhile, a directory that cannot be read
        return
